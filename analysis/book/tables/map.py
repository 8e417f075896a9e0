"""The map of V8 and the log's fusion: every problem, and how good the model of it is."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import pandas as pd

from kernels import Problem, Unsupported

from ...measure.studies import FUSIONS, NAIVE
from ...models import fit
from ...models.advice import TYPICAL, advice_of, starved
from ...models.targets import label as shape_of
from ...records.known import UNSUPPORTED, WRONG, Known
from ...records.text import NOTHING
from ..table import Table, lines, mark, ratio, small, status, timed


def map_problems(judged: fit.Judged) -> Table:
    """Every problem of the map: the times of the family and of the log's fusion, and what the model chooses."""
    versions = (*FUSIONS, NAIVE)
    held, rows = set(judged.held()), []

    def cell(version: str, problem: Problem) -> str:
        check = judged.evidence.check(version, problem)
        text = lines(timed(judged.evidence, version, problem), mark(WRONG) if check and check.status == WRONG else "")
        return f"<b>{text}</b>" if version in judged.winners(problem) else text

    for regime in fit.REGIMES:
        of_kind = [problem for problem in judged.problems if fit.regime(problem) == regime]
        for problem in sorted(of_kind, key=lambda problem: (problem.seq_q, problem.seq_k, problem)):
            chosen = judged.chosen(problem)
            answer = mark(fit.WORDS[chosen], "ok" if chosen in judged.winners(problem) else "wrong")
            shape = shape_of(problem) + (" *" if problem in held else "")
            rows.append((regime, shape, *(cell(version, problem) for version in versions), answer))
    header = ("kind", "problem", *(f"{fit.WORDS[version]}, µs" for version in FUSIONS), "log, µs", "the model")
    return Table(
        header,
        rows,
        numbers=header[2:-1],
        caption="device_warm. Bold: the fastest of the family, and what ties with it. * held out: not fitted to. Log: "
        "its full fusion, which takes only as many queries as keys, and is not measured where it would take longest.",
    )


def map_answers(judged: fit.Judged) -> Table:
    """How good the model's answers are on what was held out, and how good one answer to everything is."""
    return Table.from_frame(
        fit.answers(judged),
        {
            "answer": ("answer", str),
            "right": ("right", "{:.0f} %"),
            "strictly": ("the fastest", "{:.0f} %"),
            "lost": ("lost on average", "{:.1f} %"),
            "worst": ("lost at worst", "{:.0f} %"),
        },
        slice(1, None),
        f"On {len(judged.held())} held-out problems. Right: the fastest, or a tie with it. Lost: time over the "
        "fastest.",
    )


def map_regimes(judged: fit.Judged) -> Table:
    """The model's errors by kind of problem: held out, and as predicted by a model that saw none of the kind."""
    rows = []
    family = judged.points[judged.points["version"].isin(FUSIONS)]
    for regime in fit.REGIMES:
        held = [problem for problem in judged.held() if fit.regime(problem) == regime]
        if held:
            points = family[(family["regime"] == regime) & family["held_out"]]
            right = fit.answers(judged, held).set_index("answer")["right"]["the model"]
            rows.append((regime, len(held), fit.errors(points).median(), right))
    frame = pd.DataFrame(rows, columns=["regime", "held", "median", "chosen"])
    return Table.from_frame(
        frame.merge(fit.extrapolated(judged), on="regime", how="left"),
        {
            "regime": ("kind", str),
            "held": ("held out", str),
            "median": ("median error", "{:.0f} %"),
            "chosen": ("right", "{:.0f} %"),
            "error": ("median error, kind unseen", "{:.0f} %"),
            "right": ("right, kind unseen", "{:.0f} %"),
        },
        slice(1, None),
        "Few queries: up to 16. Many: from 256 on. Short: between; few heads are fewer than 32. Right: the fastest "
        "version was chosen, or one that ties. Kind unseen: by a model fitted without any problem of the kind.",
    )


def advice(judged: fit.Judged, problems: Mapping[str, Problem] = TYPICAL) -> Table:
    """What the model advises for some problems, with its error bars."""
    rows = []
    for label, problem in problems.items():
        try:
            given = advice_of(judged, problem)
        except Unsupported as refusal:
            why = status(Known(UNSUPPORTED, str(refusal)))
            rows.append(
                {"problem": lines(label, small(shape_of(problem))), "advice": why, "taken": NOTHING, "next": NOTHING}
            )
            continue
        taken = given.times[given.choice]
        beyond = escape("; ".join(given.outside))
        close = "too close to call" if given.margin and given.margin.low <= 1 else ""
        also = "time PyTorch first" if starved(problem) else ""
        rows.append(
            {
                "problem": lines(label, small(shape_of(problem)), small(beyond) if beyond else ""),
                "advice": lines(fit.WORDS[given.choice], *(small(each) for each in (close, also) if each)),
                "taken": lines(f"{taken.us:,.1f}", small(f"{taken.low:,.1f}–{taken.high:,.1f}")),
                "next": lines(fit.WORDS[given.runner_up], ratio(given.margin)) if given.runner_up else NOTHING,
            }
        )
    return Table.from_frame(
        rows,
        {
            "problem": ("problem", str),
            "advice": ("advice", str),
            "taken": ("predicted µs", str),
            "next": ("the next takes", str),
        },
        slice(2, None),
        f"By the model; {100 * fit.COVERED:.0f} % of held-out points lie within such bars. The model knows the "
        "three versions, not PyTorch. B batch, H heads, S queries/keys, D head dim, R rotated dims.",
    )
