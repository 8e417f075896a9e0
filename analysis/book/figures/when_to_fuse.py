"""When to fuse: the fastest of three versions of one core, and what the model of their times is worth."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.ticker import LogLocator

from ...measure.studies import FUSIONS, NAIVE
from ...models import advice, cost, fit
from ..style import WRONG, Plot, canvas, computed, legend, log_ticks, looks, measured_in

FUSION_SERIES = looks(
    (fit.FULL, 0, "o", "full fusion"),
    (fit.HYBRID, 1, "s", "hybrid"),
    (fit.SEPARATE, 2, "^", "separate"),
    (NAIVE, 4, "P", "the log's full fusion"),
)


def fusion_map(judged: fit.Judged) -> Plot:
    """Which of full fusion, hybrid and separate wins on one core: by keys, size of K, and how K is rotated."""
    rows = []
    for problem in judged.problems:
        best = judged.fastest(problem)
        others = [judged.measured(problem, version) for version in FUSIONS if version != best]
        rows.append(
            {
                "kind": advice.kind(problem, judged.evidence.target),
                "problem": str(problem),
                "keys": problem.seq_k,
                "k_megabytes": 4e-6 * math.prod(problem.kv_shape),
                "winner": best,
                "margin": min(others) / judged.measured(problem, best),
                "tie": len(judged.winners(problem)) > 1,
                "predicted": judged.chosen(problem),
                "predicted_right": judged.chosen(problem) in judged.winners(problem),
                "held_out": problem in judged.held(),
            }
        )
    frame = pd.DataFrame(rows)
    said = advice.words(judged)
    title = (
        f"Full fusion wins or ties on {said['fused_one_tile']} problems whose keys fit one tile, on "
        f"{said['fused_together']} whose blocks rotate more keys together, on {said['fused_alone']} of the others"
    )
    left, right = frame["keys"].min() / 2, frame["keys"].max() * 2
    low, high = frame["k_megabytes"].min() / 2, frame["k_megabytes"].max() * 2
    together = frame["kind"] == advice.KINDS[2]
    panels = {"Rotated where met": frame[~together], "Rotated together": frame[together]}
    with canvas(title, rows=1, columns=2, height=4.6, sharex=True, sharey=True) as (figure, axes):
        for axis, (name, mine) in zip(axes, panels.items()):
            axis.axvline(cost.CORE_KEYS * 1.2, color="0.4", ls="--", lw=1, label="one tile of keys")
            for row in mine.sort_values("margin", ascending=False).itertuples():
                look = {"ms": _margin_size(row.margin), "ls": "", "zorder": 3, **FUSION_SERIES[row.winner]}
                hollow = {"markerfacecolor": "white"} if row.tie else {}
                axis.plot(row.keys, row.k_megabytes, **{**look, "label": None}, **hollow)
                if not row.predicted_right:
                    axis.plot(row.keys, row.k_megabytes, **{**WRONG, "ms": 6, "label": None})
            axis.set_title(name, loc="left")
            log_ticks(axis, "x", left, right, "")
            log_ticks(axis, "y", low, high)
            axis.set(xlim=(left, right), ylim=(low, high), xlabel="keys")
            axis.xaxis.set_major_locator(LogLocator(base=10))
        axes[0].set_ylabel("K, MB")
        for version in FUSIONS:
            axes[0].plot([], [], ls="", **FUSION_SERIES[version])
        axes[0].plot([], [], ls="", marker="o", color="0.3", markerfacecolor="white", label="a tie")
        if not frame["predicted_right"].all():
            axes[0].plot([], [], **{**WRONG, "ms": 6, "label": "the model chose another"})
        legend(figure, axes)
    return Plot(
        "fusion-map",
        figure,
        f"The fastest of three versions of one core, device_warm on the {judged.evidence.card}; larger marks: a "
        "larger lead over the next. Left and right: how full fusion rotates K, by its rule: again for each tile of "
        "queries, or once, by all blocks before they attend. A tie is within 3 %, or within the interval over the "
        "processes.",
        "Dot plot of the fastest version by number of keys and size of K. "
        + "; ".join(
            f"{name}: "
            + ", ".join(f"{FUSION_SERIES[v]['label']} {n}" for v, n in mine["winner"].value_counts().items())
            for name, mine in frame.groupby("kind", sort=False)
        )
        + ".",
        frame,
        measured_in(judged.evidence),
    )


def _margin_size(margin: float) -> float:
    """Points across of a mark, by how many times as long the next takes."""
    return 4 + 7 * min(math.log2(margin), 1.0)


def fusion_model(judged: fit.Judged) -> Plot:
    """Predicted over measured times: what the model was fitted to in grey, what was held out in colour."""
    frame = judged.points.sort_values(["held_out", "version"], kind="stable")
    held = frame[frame["held_out"] & frame["version"].isin(FUSIONS)]
    found = fit.answers(judged).set_index("answer")["right"]
    constants = found.drop(index="the model")
    title = (
        f"Held out, the model is off by {fit.errors(held).median():.0f} % in the median; its choice is right on "
        f"{found['the model']:.0f} % of problems, the best constant one on {constants.max():.0f} %"
    )
    low = min(frame["measured_us"].min(), frame["predicted_us"].min()) / 1.5
    high = max(frame["measured_us"].max(), frame["predicted_us"].max()) * 1.5
    with canvas(title, height=5.2) as (figure, (axis,)):
        axis.fill_between([low, high], [0.8 * low, 0.8 * high], [1.2 * low, 1.2 * high], color="0.92", label="± 20 %")
        axis.plot([low, high], [low, high], color="0.2", lw=1)
        seen = frame[~frame["held_out"]]
        look: dict[str, Any] = {"ls": "", "ms": 4}
        axis.plot(seen["measured_us"], seen["predicted_us"], color="0.65", marker=".", label="fitted to", **look)
        for version, style in FUSION_SERIES.items():
            mine = frame[frame["held_out"] & (frame["version"] == version)]
            axis.plot(mine["measured_us"], mine["predicted_us"], zorder=3, **{**look, **style})
        for which in ("x", "y"):
            log_ticks(axis, which, low, high)  # type: ignore[arg-type]
        axis.set(xlim=(low, high), ylim=(low, high), xlabel="µs a call, measured", ylabel="µs a call, predicted")
        legend(figure, [axis], columns=3)
    shown = frame.assign(problem=frame["problem"].map(str))
    return Plot(
        "fusion-model",
        figure,
        f"Times of a call, device_warm on the {judged.evidence.card}. In colour: problems that the model "
        "was not fitted to.",
        "Dot plot of predicted by measured time. "
        + "; ".join(
            f"{version}, held out: median error {fit.errors(mine).median():.0f} %"
            for version, mine in shown[shown["held_out"]].groupby("version", sort=False)
        )
        + ".",
        shown,
        measured_in(judged.evidence) + computed("predicted by the model fitted to that"),
    )
