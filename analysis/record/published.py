"""Numbers that the documents state, by version and problem."""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd

from kernels.version import Problem

from .files import DATA, read_table

DOCUMENTS = (
    "Fusing Positional Embeddings into Attention Kernels",
    "Final Summary: Attention Kernel Optimization Journey",
    "RoPE Fusion Implementation Log",
    "Sinusoidal Hybrid Optimization Analysis",
    "Phase 6 Status Report - Scalar Optimization Attempt",
)
SHAPE = ("batch", "heads", "seq_q", "seq_k", "hdim")


class Published(NamedTuple):
    """A stated value: that of the first document to have it, and the range over all of them and their logs."""

    value: float
    low: float
    high: float


@functools.cache
def load() -> pd.DataFrame:
    """data/published.csv, the write-up first, then the other documents, then their logs."""
    frame = read_table(DATA / "published.csv", "published")
    rank = {document: place for place, document in enumerate(DOCUMENTS)}
    order = frame["source_document"].map(rank).fillna(len(rank))
    return frame.iloc[order.argsort(kind="stable")].reset_index(drop=True)


@functools.cache
def by_id() -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in load().to_dict("records")}


@functools.cache
def _by_problem() -> dict[tuple[Any, ...], pd.DataFrame]:
    rows = load()
    keys = [rows[name] for name in ("version", "quantity", *SHAPE)]
    return dict(list(rows.groupby([*keys, rows["rotary_dim"].fillna(0)], sort=False)))


def _rows(version: str, problem: Problem, quantity: str) -> pd.DataFrame:
    """Everything stated about a version on a problem."""
    shape = (getattr(problem, name) for name in SHAPE)
    return _by_problem().get((version, quantity, *shape, problem.rotary_dim), load().head(0))


def main_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Of problems that differ in the rotary dim alone the one as published, which rotates the least: here alone."""
    chosen = {}
    for problem in sorted(problems, key=lambda p: (p.hdim, p.seq_q, p.causal, -p.rotary_dim)):
        chosen[dataclasses.replace(problem, rotary_dim=0)] = problem
    return list(chosen.values())


def _state(values: pd.Series) -> Published | None:
    return Published(float(values.iloc[0]), float(values.min()), float(values.max())) if len(values) else None


def published(version: str, problem: Problem) -> Published | None:
    """The milliseconds stated for a version on a problem, or None."""
    return _state(_rows(version, problem, "time_ms")["value"])


@functools.cache
def speedup(version: str, baseline: str, problem: Problem) -> Published | None:
    """The published speedup of a version over `baseline`: stated, else from two stated times.

    Of several pairs of times in a document that of one place counts, a run or a table.
    """
    frame = _rows(version, problem, "speedup")
    frame = frame[frame["baseline"] == baseline]
    if not frame.empty:
        return _state(frame["value"].where(frame["unit"] != "x_slower", 1 / frame["value"]))
    ours, theirs = _rows(version, problem, "time_ms"), _rows(baseline, problem, "time_ms")
    pairs = ours.merge(theirs, on=["source_document"], suffixes=("", "_baseline"))
    ours_at, theirs_at = (pairs[name].str.split(";").str[0] for name in ("locator", "locator_baseline"))
    same = ours_at == theirs_at
    pairs = pairs[same | ~same.groupby(pairs["source_document"]).transform("any")]
    return _state(pairs["value_baseline"] / pairs["value"])


@functools.cache
def card(family: str) -> str:
    """The GPU that a family's numbers were published for; "" where none were."""
    cards = load().query("family == @family")["gpu"].value_counts()
    return "" if cards.empty else str(cards.idxmax())
