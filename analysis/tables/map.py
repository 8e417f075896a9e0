"""The map of V8 and the log's fusion: every problem, and what is advised at typical ones."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from kernels import Problem, Unsupported

from ..evidence import Evidence
from ..evidence.known import UNSUPPORTED, WRONG, Known
from ..evidence.origin import measured
from ..measure.studies import FUSIONS, NAIVE
from ..models.advice import SIZES, STUDIES, TYPICAL, advice_of, starved
from ..models.fusion import FULL, HYBRID, REGIMES, SEPARATE, WORDS, problems, regime, winners
from ..models.targets import label as shape_of
from ..record.text import NOTHING
from .table import Missing, Table, lines, mark, ratio, small, status, time_cell


def map_problems(e: Evidence) -> Table | Missing:
    """Every problem of the map: the times of the family and of the log's fusion."""
    study, rows = e.study("map"), []

    def row(kind: str, problem: Problem) -> tuple[str, ...]:
        cells = []
        for version in (*FUSIONS, NAIVE):
            check, us = study.check(version, problem), e.time(version, study="map", problem=problem)[problem]
            text = lines(time_cell(us), mark(WRONG) if check and check.status == WRONG else "")
            cells.append(f"<b>{text}</b>" if version in winners(e, problem) else text)
        return (kind, shape_of(problem), *cells)

    for kind in REGIMES:
        of_kind = [problem for problem in problems(e) if regime(problem) == kind]
        rows += [row(kind, each) for each in sorted(of_kind, key=lambda each: (each.seq_q, each.seq_k, each))]
    if not rows:
        return Missing.study("map")
    header = ("kind", "problem", *(f"{WORDS[version]}, µs" for version in FUSIONS), "log, µs")
    return Table(
        header,
        rows,
        numbers=header[2:],
        caption="device_warm. Bold: the fastest of the family, and what ties with it. Log: its full fusion, which "
        "takes only as many queries as keys, and is not measured where it would take longest.",
    ).of(measured(e, "map"))


def advice(e: Evidence, typical: Mapping[str, Problem] = TYPICAL) -> Table | Missing:
    """For some problems what the rule says, and what the three versions take at the nearest measured shape."""
    if not problems(e):
        return Missing.study("map")
    rows = []
    for name, problem in typical.items():
        row = {"problem": lines(name, small(shape_of(problem))), **dict.fromkeys(("near", "us", HYBRID, SEPARATE))}
        try:
            given = advice_of(e, problem)
        except Unsupported as refusal:
            rows.append(row | {"rule": status(Known(UNSUPPORTED, str(refusal)))})
            continue
        near = given.nearest[0]
        also = small("time PyTorch first") if starved(problem) else ""
        away = small(f"within {near.factor:.2g}× in every size") if near.factor > 1 else ""
        row |= {"rule": lines(WORDS[given.rule], also), "near": lines(escape(shape_of(near.problem)), away)}
        over = {version: ratio(each) for version, each in near.over.items()}
        rows.append(row | {"us": f"{near.us.value:,.1f}", **over})
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
    ).of(measured(e, *STUDIES))


def _or_nothing(text: str | None) -> str:
    return text or NOTHING
