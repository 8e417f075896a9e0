"""The map of V8 and the log's fusion: every problem, and what is advised at typical ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from kernels import Problem, Unsupported

from ..measure.studies import FUSIONS, NAIVE
from ..models.advice import SIZES, TYPICAL, advice_of, starved
from ..models.fusion import FULL, HYBRID, REGIMES, SEPARATE, WORDS, problems, regime, times, winners
from ..models.targets import label as shape_of
from ..records.known import UNSUPPORTED, WRONG, Known
from ..records.measured import Measured
from ..records.text import NOTHING
from .table import Table, lines, mark, ratio, small, status, timed


def map_problems(measured: Measured) -> Table:
    """Every problem of the map: the times of the family and of the log's fusion."""
    versions = (*FUSIONS, NAIVE)
    rows = []

    def row(kind: str, problem: Problem) -> tuple[str, ...]:
        taken = times(measured, problem)
        fastest = winners(measured, problem) or {min(taken, key=lambda version: taken[version])}
        cells = []
        for version in versions:
            check = measured.check(version, problem)
            wrong = mark(WRONG) if check and check.status == WRONG else ""
            text = lines(timed(measured, version, problem), wrong)
            cells.append(f"<b>{text}</b>" if version in fastest else text)
        return (kind, shape_of(problem), *cells)

    for kind in REGIMES:
        of_kind = [problem for problem in problems(measured) if regime(problem) == kind]
        rows += [row(kind, each) for each in sorted(of_kind, key=lambda each: (each.seq_q, each.seq_k, each))]
    header = ("kind", "problem", *(f"{WORDS[version]}, µs" for version in FUSIONS), "log, µs")
    return Table(
        header,
        rows,
        numbers=header[2:],
        caption="device_warm. Bold: the fastest of the family, and what ties with it. Log: its full fusion, which "
        "takes only as many queries as keys, and is not measured where it would take longest.",
    )


def advice(studies: Sequence[Measured], typical: Mapping[str, Problem] = TYPICAL) -> Table:
    """For some problems what the rule says, and what the three versions take at the nearest measured shape."""
    rows = []
    for name, problem in typical.items():
        row = {"problem": lines(name, small(shape_of(problem))), **dict.fromkeys(("near", "us", HYBRID, SEPARATE))}
        try:
            given = advice_of(studies, problem)
        except Unsupported as refusal:
            rows.append(row | {"rule": status(Known(UNSUPPORTED, str(refusal)))})
            continue
        near = given.nearest[0]
        also = small("time PyTorch first") if starved(problem) else ""
        away = small(f"within {near.factor:.2g}× in every size") if near.factor > 1 else ""
        row |= {"rule": lines(WORDS[given.rule], also), "near": lines(escape(shape_of(near.problem)), away)}
        rows.append(row | {"us": f"{near.us.us:,.1f}", **{version: ratio(each) for version, each in near.over.items()}})
    shown = {version: (f"{WORDS[version]} over it", _or_nothing) for version in (HYBRID, SEPARATE)}
    return Table.from_frame(
        rows,
        {
            "problem": ("problem", str),
            "rule": ("by the rules", str),
            "near": ("nearest measured", _or_nothing),
            "us": (f"{WORDS[FULL]}, µs", _or_nothing),
            **shown,
        },
        slice(3, None),
        f"Nearest in the logarithms of {', '.join(SIZES)}; another mask counts as a factor of 2. B batch, H heads, "
        "S queries/keys, D head dim, R rotated dims.",
    )


def _or_nothing(text: str | None) -> str:
    return text or NOTHING
