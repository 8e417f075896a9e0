"""A verdict for every claim of the documents, from data alone: `python -m analysis claims` writes verdicts.csv.

What follows from the tests is said in analysis/claims/rule.py.
"""

import argparse
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..evidence import Evidence
from ..evidence.known import NOT_MEASURED
from ..evidence.load import Record
from ..record.columns import SCHEMAS
from ..record.files import gpu_folder, is_committed, known_gpus, read_records, write_table
from . import attention, half, rope, sinusoidal, validation
from .claim import CLAIMS, DIRECTIONS, EFFECT, HEADLINE, Claim, Place, Test
from .rule import (
    DEVICE,
    HOLDS,
    JUDGED,
    MATCHED,
    NOT_SUPPORTED,
    NOT_TESTED,
    REPRODUCED,
    SAME_DIRECTION,
    UNDECIDED,
    VERDICTS,
    across,
    decide,
    explain,
    together,
    too_wide,
    verdict,
)

SUBJECTS = (attention, sinusoidal, rope, validation, half)  # importing them registers their claims
NO_EFFECT = "there is no effect to explain"
WIDE = "whether it is reproduced is open: the interval is too wide"
Row = dict[str, Any]
COLUMNS = [column.name for column in SCHEMAS["verdicts"]]


def claims() -> list[Claim]:
    """All claims, by id."""
    return sorted(CLAIMS.values(), key=lambda claim: claim.id)


# ---------------------------------------------------------------- one place


def _plain(value: float) -> float | int | None:
    """A whole number as such, so that it is written with all its digits; nothing for what is not known."""
    if math.isnan(value):
        return None
    return int(value) if float(value).is_integer() and abs(value) < 1e15 else float(value)


def _rule(rule: str, bounds: Sequence[float], digits: int | None) -> str:
    if rule == "direction":
        return next(word for word, bound in DIRECTIONS.items() if bound == bounds[0])
    words = {"least": "at least", "most": "at most"}.get(rule, rule)
    joint = " and " if rule == "between" else " to "
    exact = f" to {digits} digits" if digits else ""
    return f"{words} {joint.join(f'{_plain(bound):.6g}' for bound in bounds)}{exact}"


def judge(test: Test, place: Place, condition: str) -> Row:
    """The columns of one test at one place in verdicts.csv."""
    measured, bounds = place.measured, sorted(bound.value for bound in place.bounds)
    row: Row = {"says": test.says, "role": test.role, "part": test.part, "place": str(place), "unit": test.unit}
    row |= {"rule": _rule(test.rule, bounds, test.digits), "condition": condition}
    if len(bounds) == 1 and test.rule != "direction":
        row["published"] = _plain(bounds[0])
    if measured.why:
        untested = test.kind == "cause" and measured.why.word == NOT_MEASURED
        row |= {"outcome": NOT_TESTED if untested else UNDECIDED, "reason": str(measured.why)}
    else:
        outcome = decide(test.kind, test.rule, bounds, measured, test.digits, test.unit)
        row |= {"outcome": outcome, "measured": _plain(measured.value)}
        if not measured.is_exact:
            row |= {"low": _plain(measured.low), "high": _plain(measured.high)}
        if test.rule == "published" and too_wide(bounds[0], bounds[-1], outcome, measured):
            row["reason"] = WIDE
        if outcome == UNDECIDED:
            row["reason"] = (
                "the interval straddles the bounds" if measured.known else "a single process has no interval"
            )
    used = dict.fromkeys(source for each in (*place.bounds, measured) for source in each.about.sources)
    if not any(source.startswith(("timings", "counters")) for source in used):
        row["condition"] = ""
    stale = [f"stale: {', '.join(measured.about.stale)}"] if measured.about.stale else []
    return {**row, "evidence": "; ".join([*used, *stale])}


def _places(tests: Iterable[Test], condition: str) -> list[tuple[Place, Row]]:
    return [(place, judge(test, place, condition)) for test in tests for place in test.places]


def _judged_under(tests: Iterable[Test]) -> list[str]:
    """The conditions under which some tests can be judged, by what they leave open."""
    opened = {name for test in tests for place in test.places for name in place.measured.about.open}
    needs = {condition: "study" if condition == MATCHED else "timer" for condition in JUDGED}
    return [condition for condition in JUDGED if condition == DEVICE or needs[condition] in opened]


# ---------------------------------------------------------------- a headline under a condition


def _under(condition: str, tests: Sequence[Test]) -> list[Row]:
    """The rows of a headline at its places and of its effects, each with the verdict that the headline gives."""
    headline = next(test for test in tests if test.role == HEADLINE)
    effects = _places((test for test in tests if test.role == EFFECT), condition)
    rows = []
    for place, row in _places([headline], condition):
        there = [effect["outcome"] for other, effect in effects if place.shared_by(other)]
        explained = explain(row["outcome"], there, exact="low" not in row)
        if explained != row["outcome"]:
            why = NO_EFFECT if explained == NOT_SUPPORTED else "whether there is an effect is open"
            row |= {"outcome": explained, "reason": why}
        rows.append(row)
    if headline.undecided:
        row = {"says": headline.says, "role": HEADLINE, "part": headline.part, "place": "", "unit": "", "condition": ""}
        rows = [{**row, "outcome": UNDECIDED, "reason": headline.undecided}]
    head = {"kind": headline.kind, "given": verdict(headline.kind, [row["outcome"] for row in rows])}
    return [{**row, **head} for row in (*rows, *(effect for _, effect in effects))]


def _may_be_reproduced(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a headline under a condition falls short of reproduced by intervals alone that are too wide."""
    headline = [row for row in rows if row["role"] == HEADLINE]
    outcomes = [REPRODUCED if row.get("reason") == WIDE else row["outcome"] for row in headline]
    return headline[0]["given"] == SAME_DIRECTION and verdict("number", outcomes) == REPRODUCED


def judge_claim(claim: Claim, e: Evidence) -> list[Row]:
    """The rows of a claim in verdicts.csv: headlines and effects under each condition."""

    @functools.cache
    def tests(condition: str) -> list[Test]:
        return claim.tests(e.under(condition))

    def own(condition: str, part: str) -> list[Test]:
        return [test for test in tests(condition) if test.part == part]

    rows, given = [], []
    for part in (test.part for test in tests(DEVICE) if test.role == HEADLINE):
        under = {}
        for condition in _judged_under(test for test in own(DEVICE, part) if test.role == HEADLINE):
            there = _under(condition, own(condition, part))
            if condition == DEVICE or any("measured" in row for row in there if row["role"] == HEADLINE):
                under[condition] = there
        rows += [row for found in under.values() for row in found]
        words = {condition: found[0]["given"] for condition, found in under.items()}
        given.append(across(words, [condition for condition, found in under.items() if _may_be_reproduced(found)]))
        if MATCHED not in under:  # where the headline says nothing of that load, its effects may
            effects = _matched(own, part)
            rows += effects
            nothing = all(row.get("reason") == NO_EFFECT for row in under[DEVICE] if row["role"] == HEADLINE)
            if nothing and effects and all(row["outcome"] == HOLDS for row in effects):
                given[-1] = NOT_TESTED
    head = {"claim_id": claim.id, "kind": claim.kind, "verdict": together(given)}
    return [{**head, "test": number, **row} for number, row in enumerate(rows, start=1)]


def _matched(own: Callable[[str, str], list[Test]], part: str) -> list[Row]:
    """The effects of a part at the load of the authors' card, where they leave the load open."""
    effects = [test for test in own(DEVICE, part) if test.role == EFFECT]
    if MATCHED not in _judged_under(effects):
        return []
    there = _places((test for test in own(MATCHED, part) if test.role == EFFECT), MATCHED)
    return [row for _, row in there if "measured" in row and row["condition"] == MATCHED]


# ---------------------------------------------------------------- all claims of a card


def verdicts(folder: Path, chosen: Sequence[Claim] | None = None) -> list[Row]:
    """The rows of verdicts.csv for the GPU measured in `folder`. Raises: DataError."""
    e = Evidence.load(folder)
    rows = []
    for claim in claims() if chosen is None else chosen:
        before = judge_claim(claim, e.before)[0]["verdict"]
        rows += [{**row, "before": before} for row in judge_claim(claim, e)]
    return rows


def verdicts_of(slug: str) -> list[Row]:
    """The rows of verdicts.csv of a GPU, None where a cell is empty: as recorded, else computed from its data.

    Recorded ones count where no file beside them was written later; those of the committed record are its tests' care.
    Raises: DataError for an unknown GPU or a damaged file.
    """
    folder = gpu_folder(slug)
    path, data = folder / "verdicts.csv", [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if is_committed(slug) or (path in data and path.stat().st_mtime_ns >= max(p.stat().st_mtime_ns for p in data)):
        return read_records(path, "verdicts")
    return _computed(Record.load(folder))


@functools.lru_cache(maxsize=4)
def _computed(record: Record) -> list[Row]:
    return [{name: row.get(name) for name in COLUMNS} for row in verdicts(record.folder)]


def recorded(slug: str) -> dict[str, list[Row]]:
    """The tests of `verdicts_of` a GPU by claim. Raises: DataError."""
    return {name: [*tests] for name, tests in itertools.groupby(verdicts_of(slug), key=lambda row: row["claim_id"])}


def named(slug: str) -> Mapping[str, frozenset[str]]:
    """By claim, the versions and the rows of published.csv that its tests name. Raises: DataError."""
    return _named(Record.load(gpu_folder(slug)))


@functools.lru_cache(maxsize=4)
def _named(record: Record) -> Mapping[str, frozenset[str]]:
    e = Evidence(record)
    return {claim.id: frozenset().union(*(test.names for test in claim.tests(e))) for claim in claims()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis claims", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", default="", help="only this folder of data/measured; else all of them")
    options = parser.parse_args(arguments)
    for folder in map(gpu_folder, [options.gpu] if options.gpu else known_gpus()):
        path = folder / "verdicts.csv"
        rows = verdicts(folder)
        write_table(path, "verdicts", rows)
        found = {row["claim_id"]: row["verdict"] for row in rows}
        counted = ", ".join(f"{list(found.values()).count(verdict)} {verdict}" for verdict in VERDICTS)
        print(f"[claims] {len(found)} claims: {counted}; {len(rows)} tests in {path}")
    return 0
