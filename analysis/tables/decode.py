"""Decoding: V8, which rotates all keys in every call, beside PyTorch with a cache of keys that are rotated already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from kernels import Problem

from ..book.origin import measured_in
from ..measure.studies import CACHED, ONE_GRAPH
from ..models.targets import V8, Evidence, floor, label
from ..records.interval import Ratio
from ..records.measured import Measured, Time
from .speed import fastest
from .table import Missing, Table, microseconds, ratio
from .use import missing

WRITTEN_OUT, SDPA = CACHED


class Token(NamedTuple):
    """One query a head: the same step with keys that are not rotated, and from a cache of rotated ones."""

    problem: Problem
    measured: Measured

    def us(self, name: str) -> Time | None:
        """What V8 or a peer takes; None where it was not timed, or its result is wrong."""
        problem = self._of(name)
        check = self.measured.check(name, problem)
        return self.measured.time(name, problem) if check and check.status == "ok" else None

    def over(self, slow: str, fast: str) -> Ratio | None:
        """How many times longer one takes than the other, in the same processes."""
        if not (self.us(slow) and self.us(fast)):
            return None
        a, b = (self.measured.medians(name, self._of(name), "device_warm") for name in (slow, fast))
        return self.measured.mean((a / b).dropna(), "device_warm", a, b)

    def _of(self, name: str) -> Problem:
        return replace(self.problem, cache="rotated") if name in CACHED else self.problem


def tokens(measured: Measured) -> Iterator[Token]:
    """Every step of decoding that was measured, in the order of the head dims."""
    return (Token(problem, measured) for problem in measured.problems("rope") if problem.cache == "none")


def table(measured: Measured | None, evidence: Evidence) -> Table | Missing:
    """V8 and PyTorch at every step, V8's smallest speedup first."""
    steps = [*tokens(measured)] if measured else []
    if measured is None or not steps:
        return missing(evidence, "make measure STUDY=decode")
    rows = [
        {
            "problem": label(token.problem),
            "v8": token.us(V8),
            "raw": token.us(raw) if (raw := fastest(measured, ONE_GRAPH, token.problem)) else None,
            "written": token.us(WRITTEN_OUT),
            "sdpa": token.us(SDPA),
            "over": token.over(WRITTEN_OUT, V8),
            "floor": floor(token.problem, measured.gpu).us,
        }
        for token in steps
    ]
    return Table.from_frame(
        sorted(rows, key=lambda row: row["over"].value if row["over"] else 0.0),
        {
            "problem": ("problem", str),
            "v8": ("rope_v8, µs", microseconds),
            "raw": ("PyTorch, one graph, µs", microseconds),
            "written": ("cache, written out, µs", microseconds),
            "sdpa": ("cache, SDPA, µs", microseconds),
            "over": ("V8 over cache, written out", ratio),
            "floor": ("floor, µs", "{:.1f}"),
        },
        slice(1, None),
        f"device_warm on the {measured.card}. rope_v8 and the first column of PyTorch rotate all keys; with a cache of "
        "rotated keys PyTorch rotates the new query and key. Speedup with the 95 % interval "
        f"{measured.covers()}. Floor: an empty launch plus the longer of two times, moving the bytes from memory and "
        "computing the products on tensor cores.",
    ).of(measured_in(measured))
