"""Every published speedup over its baseline, and what each card measured of it on the same problem."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from kernels import VERSIONS, Problem

from ...claims.rule import stands
from ...measure.studies import SOURCE_TIMER, study
from ...records import published
from ...records.files import problem_columns
from ...records.interval import Ratio
from ...records.known import FAILED, INFEASIBLE, NOT_MEASURED, OK, UNSUPPORTED, WRONG, Known, known
from ...records.measured import Measured
from ...records.published import Published
from ..front import FIVE
from .cards import STUDIES, Card

TIMERS = {"device": "device_warm", "as-timed": SOURCE_TIMER}  # kernels alone; as the authors timed
STATED = "published"
ORDER = (FAILED, UNSUPPORTED, INFEASIBLE, NOT_MEASURED, WRONG, OK)  # of two versions, the first decides


class Stated(NamedTuple):
    """A speedup of the documents."""

    version: str
    baseline: str
    problem: Problem
    published: Published


class Cell(NamedTuple):
    """What one card says of a speedup: `ratio` where both versions were timed, else `status` and `reason` say why not.

    `status` is published or a word of `known`; where the two differ, the one that has no time decides. A published
    ratio is that of the first document, and has no interval.
    """

    status: str
    reason: str = ""
    ratio: Ratio | None = None
    stale: bool = False


@functools.cache
def stated() -> tuple[Stated, ...]:
    """In the order of the log: over each version's baseline, those that documents name and those of the front page."""
    rows = published.load().query("quantity == 'speedup'")
    named = {pair for pair in zip(rows["version"], rows["baseline"]) if set(pair) <= set(VERSIONS)}
    named |= {(version, baseline) for _, version, baseline in FIVE}
    # The documents do not say whether half-precision attention is causal; the first version of it is not.
    problems = [problem for name in STUDIES for problem in study(name).problems if not problem.causal]
    told = {*published.load()["version"]}
    found = []
    for version in (version for version in VERSIONS.values() if version.id in told):
        others = sorted(baseline for name, baseline in named if name == version.id and baseline != version.baseline)
        for baseline in filter(None, [version.baseline, *others]):
            for problem in problems:
                if problem.family == version.family and (value := published.speedup(version.id, baseline, problem)):
                    found.append(Stated(version.id, baseline, problem, value))
    return tuple(found)


def cell(card: Card, speedup: Stated, timer: str) -> Cell:
    """What a card says of a published speedup; `timer` is one of the studies' timers."""
    if card.is_published:
        return Cell(STATED, ratio=Ratio(speedup.published.value, math.nan, math.nan))
    return measured_cell(card.evidence(speedup.problem), speedup, speedup.problem, timer)


def measured_cell(evidence: Measured | None, speedup: Stated, problem: Problem, timer: str) -> Cell:
    """What a study says of the two versions of a published speedup, on its own problem or on another."""
    if evidence is None:
        return Cell(NOT_MEASURED)
    pair = (speedup.version, speedup.baseline)
    outcomes = {version: _timed(evidence, version, problem, timer) for version in pair}
    version = min(pair, key=lambda version: ORDER.index(outcomes[version].word))
    status, reason = outcomes[version]
    ratio = evidence.ratio(speedup.baseline, speedup.version, problem, timer)
    if ratio is None and outcomes[version].ran:  # in no process both
        status, reason = NOT_MEASURED, ""
    stale = any(evidence.stale(version, problem) for version in pair)
    return Cell(status, f"{version}: {reason}" if reason else "", ratio, stale)


def _timed(evidence: Measured, version: str, problem: Problem, timer: str) -> Known:
    """What is known of a version; where it ran and has no time, whether timing it failed or is not done."""
    found = known(evidence, version, problem)
    if not found.ran or not evidence.medians(version, problem, timer).empty:
        return found
    rows = evidence.timings
    rows = rows[(rows["version"] == version) & (rows["problem"] == problem) & (rows["status"] == "error")]
    rows = rows[rows["timer"].isna() | (rows["timer"] == timer)]
    return Known(FAILED, str(rows["reason"].iloc[0])) if len(rows) else Known(NOT_MEASURED)


def frame(cards: Sequence[Card], timer: str) -> pd.DataFrame:
    """A row for each published speedup and card, in these orders; what is not known is missing."""
    rows: list[dict[str, Any]] = []
    for speedup in stated():
        for card in cards:
            found = cell(card, speedup, timer)
            ratio = found.ratio or Ratio(math.nan, math.nan, math.nan)
            rows.append(
                {
                    "version": speedup.version,
                    "baseline": speedup.baseline,
                    **problem_columns(speedup.problem),
                    "card": card.slug,
                    "label": card.label,
                    "gpu": card.name(speedup.problem.family),
                    "timer": STATED if card.is_published else timer,
                    "status": found.status,
                    "reason": found.reason,
                    "speedup": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "stale": int(found.stale),
                    "against_published": "" if card.is_published else stands(speedup.published.value, found.ratio),
                }
            )
    return pd.DataFrame(rows)
