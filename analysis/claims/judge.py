"""A verdict for every claim of the documents, from data alone: `python -m analysis claims` writes verdicts.csv."""

import argparse
import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..evidence import Estimate, Evidence
from ..evidence.load import Record
from ..record import published
from ..record.columns import SCHEMAS
from ..record.files import Row, gpu_folder, known_gpus, read_records, write_table
from ..record.text import number
from ..studies import CONDITIONS, DEVICE, MATCHED, SLICES, THEIR_CLOCK, THEIR_SMS
from . import attention, half, rope, rule, sinusoidal, validation
from .claim import CLAIMS, DIRECTIONS, EFFECT, HEADLINE, YES_OR_NO, Claim, Place, Test

SUBJECTS = (attention, sinusoidal, rope, validation, half)  # importing them registers their claims
THEIRS = (THEIR_CLOCK, THEIR_SMS)
SHARES = ("of the gap", "of the gain")  # units of which 1 is all
NO_EFFECT, EFFECT_OPEN = "there is no effect to explain", "whether there is an effect is open"
NEAR = "the counter is within 10 % of the threshold"


def deciding(conditions: Collection[str]) -> list[str]:
    """Of the conditions that a headline has been judged under those that decide: the others are shown alone."""
    for chosen in (THEIRS[::-1], (MATCHED,)):
        if any(name in conditions for name in chosen):
            return [name for name in chosen if name in conditions]
    return [*conditions]


def claims() -> list[Claim]:
    """All claims, by id."""
    return sorted(CLAIMS.values(), key=lambda claim: claim.id)


def shown(value: float, unit: str, exact: bool = True) -> str:
    """A bound, or what a test found, with its unit; an exact ratio that is whole has no decimals."""
    if unit == YES_OR_NO:
        return "yes" if value else "no"
    if unit in SHARES:
        return number(100 * value, "%", 0)
    if 0 < abs(value) < 0.001:
        return f"{value:.2g}{unit.replace('x', '×')}"
    if unit == "x":
        return number(value, "×", 0 if exact and float(value).is_integer() else 2)
    return number(value, unit)


def _as_printed(bound: Estimate) -> str:
    """The numbers that the documents print where a bound is made from it: an inverse, a percentage, or two times."""
    rows = [published.by_id()[name] for name in sorted(bound.about.names) if name in published.by_id()]
    said = " and ".join(f"{row['value']:g}" for row in rows)
    match [row["unit"] for row in rows]:
        case ["x_slower"]:
            return f" ({said}× slower)"
        case ["%"]:
            return f" ({said} % {rows[0]['sense']})"
        case ["ms", "ms"]:
            return f" ({said} ms)"
    return ""


def _asked(test: Test, place: Place) -> str:
    """The bounds of the measured value in words."""
    bounds = sorted(place.bounds, key=lambda bound: bound.value)
    if test.rule == "direction":
        return next(word for word, bound in DIRECTIONS.items() if bound == bounds[0].value)
    if test.unit == YES_OR_NO:
        return shown(bounds[0].value, test.unit)
    if test.rule == "published":
        said = (shown(bound.value, test.unit) + _as_printed(bound) for bound in bounds)
        return f"published {' to '.join(dict.fromkeys(said))}"
    low, *_, high = [shown(bound.value, test.unit) for bound in (*bounds, bounds[-1])]
    if test.rule == "most" or bounds[0].value == 0 < bounds[-1].value:
        return f"at most {high}"
    if test.rule == "least" or bounds[-1].value == math.inf:
        return f"at least {low}"
    if low != high:
        return f"between {low.removesuffix(test.unit).rstrip()} and {high}"
    return f"equals {low}" + (f" to {test.digits} digit{'s' * (test.digits > 1)}" if test.digits else "")


def _with_margin(measured: Estimate, unit: str) -> Estimate:
    """A share that a hardware counter gives is taken to within 10 %, since it is read once and has no spread."""
    if not (unit.startswith("%") and any(source.startswith("counters") for source in measured.about.sources)):
        return measured
    return replace(measured, low=measured.value / rule.AGREE, high=measured.value * rule.AGREE)


def judge(test: Test, place: Place, condition: str) -> Row:
    """The columns of one test at one place in verdicts.csv."""
    measured, bounds = _with_margin(place.measured, test.unit), sorted(bound.value for bound in place.bounds)
    row: Row = {"says": test.says, "role": test.role, "part": test.part, "place": str(place), "unit": test.unit}
    row |= {"rule": _asked(test, place), "condition": condition}
    if measured.why:
        row |= {"outcome": rule.UNDECIDED, "reason": str(measured.why)}
    else:
        outcome = rule.decide(test.kind, test.rule, bounds, measured, test.digits, test.unit)
        row |= {"outcome": outcome, "measured": measured.value}
        if measured.sample or measured.low != measured.high:  # it is no exact number
            row |= {"low": measured.low, "high": measured.high}
        if outcome == rule.UNDECIDED:
            straddles = "the interval straddles the bounds" if measured.sample else NEAR
            row["reason"] = straddles if measured.known else "a single process has no interval"
    used = dict.fromkeys(source for each in (*place.bounds, measured) for source in each.about.sources)
    if not any(source.startswith(("timings", "counters")) for source in used):
        row["condition"] = ""
    stale = [f"stale: {', '.join(measured.about.stale)}"] if measured.about.stale else []
    return {**row, "evidence": "; ".join([*used, *stale])}


def _places(tests: Iterable[Test], condition: str) -> list[tuple[Place, Row]]:
    return [(place, judge(test, place, condition)) for test in tests for place in test.places]


def _under(condition: str, tests: Sequence[Test]) -> list[Row]:
    """The rows of a headline at its places and of its effects, each with the verdict that the headline gives."""
    headline = next(test for test in tests if test.role == HEADLINE)
    effects = _places((test for test in tests if test.role == EFFECT), condition)
    rows = []
    for place, row in _places([headline], condition):
        there = [effect["outcome"] for other, effect in effects if place.shared_by(other)]
        explained = rule.explain(row["outcome"], there, exact="low" not in row)
        if explained != row["outcome"]:
            row |= {"outcome": explained, "reason": NO_EFFECT if explained == rule.NOT_SUPPORTED else EFFECT_OPEN}
        rows.append(row)
    head = {"kind": headline.kind, "given": rule.verdict(headline.kind, [row["outcome"] for row in rows])}
    return [{**row, **head} for row in (*rows, *(effect for _, effect in effects))]


def _found(rows: Iterable[Row]) -> list[tuple[float, str]]:
    """The values at the places of a headline, and their sources."""
    return [(row["measured"], row["evidence"]) for row in rows if row["role"] == HEADLINE and "measured" in row]


def _sliced(rows: Iterable[Row]) -> bool:
    """Whether a headline was measured on their SMs: a test that names its study is not."""
    return any(f"timings of {SLICES}" in row["evidence"] for row in rows if row["role"] == HEADLINE)


def judge_claim(claim: Claim, e: Evidence) -> list[Row]:
    """The rows of a claim in verdicts.csv: headlines and effects under each condition that measures something else."""
    tests = {condition: claim.tests(e.under(condition)) for condition in CONDITIONS}
    rows, given = [], []
    for part in [test.part for test in tests[DEVICE] if test.role == HEADLINE]:
        under = {name: _under(name, [test for test in mine if test.part == part]) for name, mine in tests.items()}
        same: tuple = ([], _found(under[DEVICE]))
        counted = any("counters" in source for _, source in _found(under[DEVICE]))
        of_times = not counted and _found(under[THEIR_SMS]) != _found(under[DEVICE])
        kept = {
            DEVICE: True,
            MATCHED: counted and _found(under[MATCHED]),
            **{name: _found(under[name]) not in same and _sliced(under[name]) for name in THEIRS},
        }
        under = {name: found for name, found in under.items() if kept.get(name, _found(found) not in same)}
        rows += [row for found in under.values() for row in found]
        decide: Collection[str] = THEIRS if of_times else (MATCHED,) if counted else under
        given.append(rule.across([found[0]["given"] for name, found in under.items() if name in decide]))
    head = {"claim_id": claim.id, "kind": claim.kind, "verdict": rule.together(given)}
    return [{**head, **row} for row in rows]


def verdicts(e: Evidence, chosen: Sequence[Claim] | None = None) -> list[Row]:
    """The rows of verdicts.csv of a card."""
    return [row for claim in (claims() if chosen is None else chosen) for row in judge_claim(claim, e)]


@functools.lru_cache(maxsize=4)
def recorded(record: Record) -> dict[str, list[Row]]:
    """By claim, the rows of verdicts.csv of a card, None where a cell is empty: from its data; of the committed record
    as recorded, which its tests compare with that."""
    if record.is_reference:
        rows = read_records(record.folder / "verdicts.csv", "verdicts")
    else:
        blank = dict.fromkeys(column.name for column in SCHEMAS["verdicts"])
        rows = [{**blank, **row} for row in verdicts(Evidence(record))]
    return {name: [*tests] for name, tests in itertools.groupby(rows, key=lambda row: row["claim_id"])}


@functools.lru_cache(maxsize=4)
def named(record: Record) -> Mapping[str, frozenset[str]]:
    """By claim, the versions and the rows of published.csv that its tests name."""
    e = Evidence(record)
    return {claim.id: frozenset().union(*(test.names for test in claim.tests(e))) for claim in claims()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis claims", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", default="", help="only this folder of data/measured; else all of them")
    options = parser.parse_args(arguments)
    for folder in map(gpu_folder, [options.gpu] if options.gpu else known_gpus()):
        path = folder / "verdicts.csv"
        rows = verdicts(Evidence.load(folder))
        write_table(path, "verdicts", rows)
        found = {row["claim_id"]: row["verdict"] for row in rows}
        counted = ", ".join(f"{list(found.values()).count(verdict)} {verdict}" for verdict in rule.VERDICTS)
        print(f"[claims] {len(found)} claims: {counted}; {len(rows)} tests in {path}")
    return 0
