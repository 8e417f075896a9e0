"""When to fuse: the fastest of three versions of one core, and what the model of their times is worth."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ...measure.studies import FUSIONS, NAIVE
from ...models import cost, fit
from ...models.advice import MANY_HEADS, kv_heads
from ...models.targets import MEASURED_IN, Evidence, beside_one_graph
from ..style import Plot, canvas, computed, legend, log_ticks, looks, measured_in

FUSION_SERIES = looks(
    (fit.FULL, 0, "o", "full fusion"),
    (fit.HYBRID, 1, "s", "hybrid"),
    (fit.SEPARATE, 2, "^", "separate"),
    (NAIVE, 4, "P", "the log's full fusion"),
)
OUTCOMES = looks((fit.ALONE, 0, "o", fit.ALONE), (fit.TIES, 7, "D", fit.TIES), (fit.LOSES, 1, "s", fit.LOSES))
OUTCOMES[fit.TIES]["markerfacecolor"] = "white"
BEATEN = {"marker": "o", "markerfacecolor": "none", "color": "0.1", "label": "PyTorch is faster than full fusion"}
CELL = 0.23  # between marks of the same keys and heads


def fusion_map(judged: fit.Judged, evidence: Evidence) -> Plot:
    """Where full fusion is the fastest of the family, ties or loses, by keys and by heads of K and V; and where it
    loses to the fastest peer, of those problems that have one."""
    rows, peers = [], beside_one_graph(evidence)
    for problem in judged.problems:
        best = judged.fastest(problem)
        others = [judged.measured(problem, version) for version in FUSIONS if version != best]
        rows.append(
            {
                "problem": str(problem),
                "keys": problem.seq_k,
                "kv_heads": kv_heads(problem),
                "winner": best,
                "margin": min(others) / judged.measured(problem, best),
                "outcome": fit.outcome(judged.winners(problem)),
                "peer": peers[problem].version if problem in peers else None,
                "peer_over_full": peers[problem].ratio.value if problem in peers else None,
                "beaten": problem in peers and peers[problem].faster,
            }
        )
    frame = pd.DataFrame(rows).sort_values(["keys", "kv_heads", "outcome"], kind="stable")
    keys, heads = (sorted(frame[name].unique()) for name in ("keys", "kv_heads"))
    cells = frame.groupby(["keys", "kv_heads"])
    beside, abreast = cells.cumcount(), cells["keys"].transform("size").clip(upper=4)
    x = frame["keys"].map(keys.index) + CELL * (beside % 4 - (abreast - 1) / 2)
    y = frame["kv_heads"].map(heads.index) + CELL * (beside // 4)
    tile = sum(count <= cost.CORE_KEYS for count in keys) - 0.5
    few = sum(count < MANY_HEADS for count in heads) - 0.5
    with canvas(_title(frame), height=4.4) as (figure, (axis,)):
        axis.set(xlim=(-0.6, len(keys) - 0.4), ylim=(-0.6, len(heads) - 0.3))
        axis.axvline(tile, color="0.4", lw=1)
        axis.plot([tile, len(keys)], [few] * 2, color="0.4", lw=1)
        for rule, place in (
            ("1", (-0.5, few)),
            ("2", (tile + 0.1, len(heads) - 0.75)),
            ("3", (tile + 0.1, few - 0.45)),
        ):
            axis.text(*place, rule, fontsize=13, color="0.4", fontweight="bold", va="center")
        for name, look in OUTCOMES.items():
            mine = frame["outcome"] == name
            axis.plot(x[mine], y[mine], ls="", ms=5.5, zorder=3, **look)
        if frame["beaten"].any():
            axis.plot(x[frame["beaten"]], y[frame["beaten"]], ls="", ms=11, **BEATEN)
        axis.set_xticks(range(len(keys)), keys)
        axis.set_yticks(range(len(heads)), heads)
        axis.set(xlabel=f"keys; {judged.evidence.card}", ylabel="batch × heads of K and V")
        legend(figure, [axis])
    return Plot(
        "fusion-map",
        figure,
        f"Three versions of one core on {len(frame)} problems, device_warm on the {judged.evidence.card}; a mark is a "
        "problem. Areas 1 to 3 are the rules above; rings are rule 4, which also covers problems not drawn. Two tie "
        f"if their times differ by less than 3 %, or by less than the 95 % interval {judged.evidence.covers()}.",
        "Dot plot by number of keys and heads of K and V. "
        + "; ".join(f"{name}: {count}" for name, count in frame["outcome"].value_counts().items())
        + f"; {BEATEN['label']}: {frame['beaten'].sum()}.",
        frame,
        measured_in(judged.evidence, *(evidence.studies[name] for name in MEASURED_IN if name in evidence.studies)),
    )


def _title(frame: pd.DataFrame) -> str:
    """The message where the chapter's rules hold, else what is drawn."""
    short = frame["keys"] <= cost.CORE_KEYS
    few = ~short & (frame["kv_heads"] < MANY_HEADS)
    wins, losses = frame["outcome"] == fit.ALONE, frame["outcome"] == fit.LOSES
    more = [int((wins & region).sum() - (losses & region).sum()) for region in (short, ~short & ~few, few)]
    if more[0] > 0 and more[1] > 0 > more[2]:
        return "Full fusion wins with few keys, and mostly with many heads"
    return "Where full fusion wins, by keys and heads"


def fusion_model(judged: fit.Judged) -> Plot:
    """Predicted over measured times: what the model was fitted to in grey, what was held out in colour."""
    frame = judged.points.sort_values(["held_out", "version"], kind="stable")
    low = min(frame["measured_us"].min(), frame["predicted_us"].min()) / 1.5
    high = max(frame["measured_us"].max(), frame["predicted_us"].max()) * 1.5
    with canvas("The model's times beside measured ones", height=4.6) as (figure, (axis,)):
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
        card = judged.evidence.card
        axis.set(
            xlim=(low, high), ylim=(low, high), xlabel=f"µs a call, measured on the {card}", ylabel="µs, predicted"
        )
        legend(figure, [axis], columns=3)
    shown = frame.assign(problem=frame["problem"].map(str))
    return Plot(
        "fusion-model",
        figure,
        f"Times of a call, device_warm on the {card}. In colour: problems that the model was not fitted to.",
        "Dot plot of predicted by measured time. "
        + "; ".join(
            f"{version}, held out: median error {fit.errors(mine).median():.0f} %"
            for version, mine in shown[shown["held_out"]].groupby("version", sort=False)
        )
        + ".",
        shown,
        measured_in(judged.evidence) + computed("predicted by the model fitted to that"),
    )
