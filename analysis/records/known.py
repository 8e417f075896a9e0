"""On its way out: see analysis/evidence/known.py, `Study.known` and `Study.best`."""

from __future__ import annotations

from collections.abc import Iterable

from kernels import Problem

from ..evidence.known import (
    FAILED,
    INFEASIBLE,
    NOT_MEASURED,
    OK,
    RAN,
    REFUSED,
    UNSUPPORTED,
    WORDS,
    WRONG,
    Known,
    word,
)
from ..evidence.study import Study

__all__ = [
    "FAILED", "INFEASIBLE", "NOT_MEASURED", "OK", "RAN", "REFUSED", "UNSUPPORTED", "WORDS", "WRONG", "Known", "best",
    "known", "word",
]  # fmt: skip


def known(evidence: Study, version: str, problem: Problem) -> Known:
    return evidence.known(version, problem)


def best(evidence: Study, version: str, problems: Iterable[Problem]) -> Known:
    return evidence.best(version, problems)
