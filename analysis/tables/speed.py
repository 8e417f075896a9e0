"""Speedups, times and checks, published beside measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape
from statistics import geometric_mean

from kernels import VERSIONS, Problem

from ..claims.rule import stands
from ..evidence import Evidence, Study
from ..evidence.known import WRONG
from ..measure.studies import SOURCE_TIMER, STUDIES
from ..record import published
from ..record.text import NOTHING
from .table import (
    Table,
    code,
    error,
    lines,
    name,
    share,
    small,
    speedup_cell,
    stated,
    status,
    time_cell,
)  # fmt: skip


def home(e: Evidence, family: str) -> str:
    """The study that holds the documents' shapes of a family, or the first that measured it."""
    names = ("fp16",) if family == "fp16" else ("log", *STUDIES)
    return next((name for name in names if e.study(name).versions(family)), names[0])


def fastest(study: Study, versions: Iterable[str], problem: Problem) -> str | None:
    """The fastest of `versions` whose result on `problem` is right."""
    timed = []
    for version in versions:
        check, times = study.check(version, problem), study.medians(version, problem, "device_warm")
        if check and check.status == "ok" and len(times):
            timed.append((geometric_mean(times), version))
    return min(timed)[1] if timed else None


def _by_hdim(
    study: Study, family: str, cell: Callable[[str, Problem], str], caption: str, versions: Iterable[str] | None = None,
    last: str = "", told: Callable[[str], str] = str,
) -> Table:  # fmt: skip
    """A row a version and a column a head dim; with RoPE each version at the rotary dim that was published of it."""
    names = study.versions(family) if versions is None else versions
    by_version = {each: study.shapes(each, refused=True) for each in names}
    dims = sorted({size for shapes in by_version.values() for size in shapes})
    rows = [
        (
            name(version, any(study.stale(version, problem) for problem in shapes.values())),
            *(cell(version, shapes[size]) if size in shapes else NOTHING for size in dims),
            *([told(version)] if last else []),
        )
        for version, shapes in by_version.items()
    ]
    numbers = [str(size) for size in dims]
    return Table(("version", *numbers, *([last] if last else [])), rows, numbers=numbers, caption=caption)


def speedups(e: Evidence, family: str, timer: str = "device_warm") -> Table:
    """Speedup over each version's own baseline, with what was published of it."""
    study = e.study(home(e, family))

    def cell(version: str, problem: Problem) -> str:
        over, here = VERSIONS[version].baseline or "", study.known(version, problem)
        claim = published.speedup(version, over, problem)
        parts = [speedup_cell(e, version, over, problem, study.name, timer), status(here) if here.word == WRONG else ""]
        if claim:
            found = e.speedup(version, over, study.name, timer, problem=problem)[problem]
            parts += [small(f"published {stated(claim, '×')}"), small(stands(claim.value, found or None))]
        return lines(*parts)

    card = published.card(family)
    said = f" Published on the {card}; a second figure is the range over the documents and logs." if card else ""
    return _by_hdim(
        study,
        family,
        cell,
        f"Speedup over the baseline by head dim (above 1: faster), {timer}, with the 95 % interval "
        f"{e.covers(timer)}.{said}",
        [version for version in study.versions(family) if VERSIONS[version].baseline],
        "over",
        lambda version: code(VERSIONS[version].baseline or ""),
    )


def times(e: Evidence, family: str, timer: str = SOURCE_TIMER) -> Table:
    """Microseconds of one call, with the milliseconds that were published."""
    study = e.study(home(e, family))

    def cell(version: str, problem: Problem) -> str:
        claim = published.published(version, problem)
        said = small(f"published {stated(claim, digits=3)} ms") if claim else ""
        return lines(time_cell(e.time(version, study.name, timer, problem=problem)[problem]), said)

    return _by_hdim(
        study,
        family,
        cell,
        f"{timer} by head dim, µs a call on the {e.card}: median of {study.processes} processes "
        f"± half their range. Published on the {published.card(family)}: times of different cards are not compared.",
    )


def checks(e: Evidence, family: str) -> Table:
    """Correctness against float64."""
    study = e.study(home(e, family))

    def cell(version: str, problem: Problem) -> str:
        check = study.check(version, problem)
        parts = [status(study.known(version, problem))]
        if check and check.nan_share > 0:
            parts.append(f"{share(check.nan_share)} NaN")
        if check and not math.isnan(check.max_abs_err):
            parts.append(small(f"{error(check.max_abs_err)} of {error(check.allowed_abs_err)}"))
        return lines(*parts)

    def reasons(version: str) -> str:
        found, shapes = [study.check(version, p) for p in study.problems(family)], study.shapes(version)
        given = [check.reason for check in found if check and (check.status != "unsupported" or not shapes)]
        return lines(*dict.fromkeys(map(escape, given)))

    return _by_hdim(
        study,
        family,
        cell,
        "Against float64 on two inputs, by head dim; the worse decides. Below the status the largest error over the "
        "outputs that are finite, and what is allowed.",
        last="reason",
        told=reasons,
    )
