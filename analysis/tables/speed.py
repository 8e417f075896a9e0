"""Which study and which version a table shows."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import geometric_mean

from kernels import Problem

from ..evidence import Evidence, Study
from ..measure.studies import STUDIES


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
