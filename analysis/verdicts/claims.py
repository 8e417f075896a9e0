"""A verdict for every claim of the documents, from data alone: `python -m analysis claims` writes verdicts.csv.

data/claims.yml says of each claim what kind it is of, which headline decides it and what supports it; its head
describes the words. A test is an expression over `facts.Facts` and what its value must be. Timings give a value a
process and so an interval; counts, bytes and what the documents print are exact. A headline is judged under every
condition that its expression leaves open, what supports it on the device alone.

What follows from the tests is said in analysis/verdicts/rule.py.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from kernels import VERSIONS

from ..records import published
from ..records.files import (
    BUILD,
    DATA,
    ROOT,
    DataError,
    digest,
    gpu_folder,
    is_committed,
    known_gpus,
    per_file,
    read_records,
    write_table,
)
from . import expressions
from .expressions import check_expression, rows_in, versions_in
from .facts import Facts
from .rule import (
    DEVICE,
    HOLDS,
    JUDGED,
    KINDS,
    MATCHED,
    NOT_SUPPORTED,
    NOT_TESTED,
    REPRODUCED,
    SAME_DIRECTION,
    UNDECIDED,
    VERDICTS,
    NotMeasured,
    Undecided,
    across,
    decide,
    explain,
    interval,
    together,
    too_wide,
    verdict,
)

CLAIMS = DATA / "claims.yml"
HEADLINE, EFFECT, SUPPORT = ROLES = ("headline", "effect", "support")
NO_EFFECT = "there is no effect to explain"
WIDE = "whether it is reproduced is open: the interval is too wide"
RULES = ("published", "direction", "least", "most", "between", "equals")
DIRECTIONS = {"faster": math.inf, "slower": 0.0}
PAIRS = ("published", "between")  # rules that may take two bounds


# ---------------------------------------------------------------- claims


@dataclass(frozen=True)
class Test:
    """One test of a claim; of those that differ only in `names`, claims.yml states `each` together."""

    note: str
    measure: str = ""
    rule: str = ""
    bounds: tuple[str, ...] = ()
    unit: str = ""
    digits: int | None = None
    role: str = SUPPORT
    part: str = ""
    kind: str = "universal"
    undecided: str = ""
    names: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""

    def shares_place(self, other: Test) -> bool:
        """Whether both are at one place: the names that they share have the same values."""
        return all(self.names[name] == other.names[name] for name in self.names if name in other.names)


@dataclass(frozen=True)
class Claim:
    id: str
    kind: str
    claim: str
    sources: tuple[Mapping[str, str], ...]
    contradicts: tuple[str, ...]
    tests: tuple[Test, ...]
    quote: str = ""


def check_fields(entry: Any, what: str, required: Sequence[str], optional: Sequence[str]) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise DataError(f"{what}: a mapping is due, with {', '.join(required)}")
    for name in required:
        if name not in entry:
            raise DataError(f"{what}: {name!r} is missing")
    for name in entry:
        if name not in (*required, *optional):
            raise DataError(f"{what}: {name!r} is unknown; allowed: {', '.join((*required, *optional))}")
    return entry


def _tests(entry: Any, kind: str, what: str) -> Iterator[Test]:
    if isinstance(entry, dict) and "undecided" in entry:
        check_fields(entry, what, ("note", "undecided"), ("role",))
        yield Test(note=entry["note"], kind=kind, role=entry.get("role", SUPPORT), undecided=entry["undecided"])
        return
    check_fields(entry, what, ("note", "measure"), (*RULES, "unit", "digits", "role", "part", "kind", "each"))
    rules = [name for name in RULES if name in entry]
    if len(rules) != 1:
        raise DataError(f"{what}: exactly one of {', '.join(RULES)} is due, there is {', '.join(rules) or 'none'}")
    (rule,) = rules
    bounds = entry[rule] if isinstance(entry[rule], list) else [entry[rule]]
    if len(bounds) > (2 if rule in PAIRS else 1) or (rule == "between" and len(bounds) < 2):
        raise DataError(f"{what}: {rule} has {len(bounds)} bounds")
    if rule == "direction" and bounds[0] not in DIRECTIONS:
        raise DataError(f"{what}: direction is {bounds[0]!r}; allowed: {', '.join(DIRECTIONS)}")
    if "digits" in entry and rule != "equals":
        raise DataError(f"{what}: digits belong to equals, not to {rule}")
    role = entry.get("role", SUPPORT)
    if role not in ROLES:
        raise DataError(f"{what}: role is {role!r}; allowed: {', '.join(ROLES)}")
    if role == HEADLINE:
        kind = _kind(entry.get("kind", kind), what)
        if (kind == "number") != (rule in ("published", "direction")):
            raise DataError(f"{what}: a headline of kind {kind} cannot have the rule {rule}")
    else:
        kind = "count" if rule == "equals" else "universal"
    each = entry.get("each", {})
    lengths = {len(values) if isinstance(values, list) else -1 for values in each.values()}
    if each and (len(lengths) != 1 or -1 in lengths):
        raise DataError(f"{what}: the values of each are lists of one length")
    rows = [dict(zip(each, values, strict=True)) for values in zip(*each.values(), strict=True)] if each else [{}]
    for names in rows:
        try:
            note = entry["note"].format(**names)
        except KeyError as error:
            raise DataError(f"{what}: the note has {error}, which is not in each") from None
        shown = [(name, value) for name, value in names.items() if f"{{{name}}}" in entry["note"]]
        test = Test(
            note,
            str(entry["measure"]),
            rule,
            tuple(str(bound) for bound in bounds),
            entry.get("unit", "x" if rule in ("published", "direction") else ""),
            entry.get("digits"),
            role,
            entry.get("part", ""),
            kind,
            names=names,
            place=", ".join(f"{name} {value}" if isinstance(value, int) else str(value) for name, value in shown),
        )
        for text in expressions_of(test):
            check_expression(text, names, what)
        yield test


def _kind(kind: Any, what: str) -> str:
    if kind not in KINDS:
        raise DataError(f"{what}: kind is {kind!r}; allowed: {', '.join(KINDS)}")
    return str(kind)


def _check_roles(entries: Sequence[Any], what: str) -> None:
    """Raises: DataError unless there is one headline, or one for each part, and every effect has its headline."""
    given = [(entry.get("role", SUPPORT), entry.get("part", "")) for entry in entries if isinstance(entry, dict)]
    parts = [part for role, part in given if role == HEADLINE]
    if len(set(parts)) != len(parts) or not parts or ("" in parts and len(parts) > 1):
        raise DataError(f"{what}: exactly one headline is due, or one for each part, there are {len(parts)}")
    stray = [part for role, part in given if part and part not in parts]
    if stray or any(role == EFFECT and part not in parts for role, part in given):
        raise DataError(f"{what}: an effect belongs to a headline; parts are: {', '.join(parts)}")


def read_yaml(path: Path) -> Any:
    """Raises: DataError when the file is missing or damaged."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except yaml.YAMLError as error:
        raise DataError(f"{path}: {' '.join(str(error).split())}") from None


def wanted(path: Path = CLAIMS) -> Mapping[str, str]:
    """The versions that tests name and that do not exist yet, and what each changes."""
    return read_yaml(path)["wanted"]


def load(path: Path = CLAIMS) -> list[Claim]:
    """The claims of a file like data/claims.yml. Raises: DataError naming the file, the claim and what is allowed."""
    return list(_load(path))


@per_file
def _load(path: Path) -> tuple[Claim, ...]:
    content = read_yaml(path)
    check_fields(content, str(path), ("wanted", "claims"), ())
    stated = set(published.load()["id"])
    claims: dict[str, Claim] = {}
    for place, entry in enumerate(content["claims"], start=1):
        name = entry.get("id", f"claim {place}") if isinstance(entry, dict) else f"claim {place}"
        what = f"{path}, {name}"
        check_fields(entry, what, ("id", "kind", "claim", "sources", "decides"), ("quote", "contradicts"))
        if not re.fullmatch(r"[A-E]-\d\d", str(name)):
            raise DataError(f"{what}: an id is a letter from A to E and two digits, such as A-01")
        if name in claims:
            raise DataError(f"{what}: the id is taken")
        for source in entry["sources"]:
            check_fields(source, f"{what}, source", ("document", "place"), ())
            if source["document"] not in published.DOCUMENTS:
                allowed = "; ".join(published.DOCUMENTS)
                raise DataError(f"{what}: document is {source['document']!r}; allowed: {allowed}")
        kind = _kind(entry["kind"], what)
        tests = [
            test
            for number, one in enumerate(entry["decides"], start=1)
            for test in _tests(one, kind, f"{what}, entry {number} of decides")
        ]
        _check_roles(entry["decides"], what)
        for test in tests:
            for version in versions_of(test):
                if version not in VERSIONS and version not in content["wanted"]:
                    raise DataError(f"{what}: {version!r} is neither registered nor listed under wanted")
            unknown = rows_of(test) - stated
            if unknown:
                raise DataError(f"{what}: published.csv has no row {unknown.pop()}")
        claims[name] = Claim(
            name,
            kind,
            " ".join(entry["claim"].split()),
            tuple(entry["sources"]),
            tuple(entry.get("contradicts", ())),
            tuple(tests),
            entry.get("quote", ""),
        )
    for claim in claims.values():
        for other in claim.contradicts:
            if other not in claims or claim.id not in claims[other].contradicts:
                raise DataError(f"{path}, {claim.id}: it contradicts {other!r}, which does not contradict it")
    return tuple(claims.values())


# ---------------------------------------------------------------- expressions


def expressions_of(test: Test) -> tuple[str, ...]:
    return (test.measure,) if test.rule == "direction" else (test.measure, *test.bounds)


def versions_of(test: Test) -> set[str]:
    """The versions that a test names."""
    return {version for text in expressions_of(test) for version in versions_in(text, test.names)}


def rows_of(test: Test) -> set[str]:
    """The rows of published.csv that a test names."""
    return {row for text in expressions_of(test) for row in rows_in(text, test.names)}


def measure(test: Test, facts: Facts) -> float | pd.Series:
    """What a test measures. Raises: Undecided."""
    return expressions.measure(test.measure, facts, test.names)


# ---------------------------------------------------------------- verdicts


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


def judge(test: Test, facts: Facts, condition: str = DEVICE) -> dict[str, Any]:
    """The columns of one test in verdicts.csv, under one condition."""
    row: dict[str, Any] = {"says": test.note, "role": test.role, "part": test.part, "place": test.place}
    row |= {"unit": test.unit, "condition": condition}
    if test.undecided:
        return {**row, "condition": "", "outcome": UNDECIDED, "reason": test.undecided}
    facts.condition, facts.used, facts.stale, facts.varies = condition, {}, {}, set()
    try:
        if test.rule == "direction":
            bounds = [DIRECTIONS[test.bounds[0]]]
        else:
            bounds = sorted(float(expressions.measure(text, facts, test.names)) for text in test.bounds)
        row |= {"rule": _rule(test.rule, bounds, test.digits)}
        if len(bounds) == 1 and test.rule != "direction":
            row["published"] = _plain(bounds[0])
        value = measure(test, facts)
        measured = interval(value, facts.pools)
        if math.isnan(measured.value):
            raise Undecided("it has no value")
        outcome = decide(test.kind, test.rule, bounds, measured, test.digits, test.unit)
        row |= {"outcome": outcome, "measured": _plain(measured.value)}
        if isinstance(value, pd.Series):
            row |= {"low": _plain(measured.low), "high": _plain(measured.high)}
        if test.rule == "published" and too_wide(bounds[0], bounds[-1], outcome, measured):
            row["reason"] = WIDE
        if outcome == UNDECIDED:
            alone = math.isnan(measured.low)
            row["reason"] = "a single process has no interval" if alone else "the interval straddles the bounds"
    except Undecided as why:
        untested = test.kind == "cause" and isinstance(why, NotMeasured)
        row |= {"outcome": NOT_TESTED if untested else UNDECIDED, "reason": str(why)}
    except ZeroDivisionError:
        row |= {"outcome": UNDECIDED, "reason": "it divides by a count of zero"}
    if not any(source.startswith(("timings", "counters")) for source in facts.used):
        row["condition"] = ""
    stale = [f"stale: {', '.join(facts.stale)}"] if facts.stale else []
    return {**row, "evidence": "; ".join([*facts.used, *stale])}


def _conditions(facts: Facts) -> Iterator[str]:
    """What else than the device a test could be judged under, by what it left open when it was judged last."""
    for condition in JUDGED:
        needs = "study" if condition == MATCHED else "timer"
        if condition != DEVICE and needs in facts.varies:
            yield condition


def _under(condition: str, tests: Sequence[Test], facts: Facts) -> tuple[list[dict[str, Any]], set[str]]:
    """The rows of a headline at its places and of its effects, each with the verdict; and the other conditions."""
    headline = [test for test in tests if test.role == HEADLINE]
    effects = [(test, judge(test, facts, condition)) for test in tests if test.role == EFFECT]
    rows, others = [], set()
    for test in headline:
        row = judge(test, facts, condition)
        others |= set(_conditions(facts))
        there = [effect["outcome"] for other, effect in effects if test.shares_place(other)]
        explained = explain(row["outcome"], there, exact="low" not in row)
        if explained != row["outcome"]:
            absent = explained == NOT_SUPPORTED
            why = NO_EFFECT if absent else "whether there is an effect is open"
            row |= {"outcome": explained, "reason": why}
        rows.append(row)
    given = verdict(headline[0].kind, [row["outcome"] for row in rows])
    head = {"kind": headline[0].kind, "given": given}
    return [{**row, **head} for row in (*rows, *(effect for _, effect in effects))], others


def _may_be_reproduced(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a headline under a condition falls short of reproduced by intervals alone that are too wide."""
    headline = [row for row in rows if row["role"] == HEADLINE]
    outcomes = [REPRODUCED if row.get("reason") == WIDE else row["outcome"] for row in headline]
    return headline[0]["given"] == SAME_DIRECTION and verdict("number", outcomes) == REPRODUCED


def _beside(tests: Iterable[Test], facts: Facts) -> list[dict[str, Any]]:
    """The rows of tests that give no verdict: on the device, and where the load is left open also matched in load."""
    rows = []
    for test in tests:
        rows.append(judge(test, facts))
        if MATCHED in _conditions(facts):
            there = judge(test, facts, MATCHED)
            rows += [there] if "measured" in there else []
    return rows


def judge_claim(claim: Claim, facts: Facts) -> list[dict[str, Any]]:
    """The rows of a claim in verdicts.csv: headlines and effects under each condition, then what supports them."""
    rows, given = [], []
    for part in dict.fromkeys(test.part for test in claim.tests if test.role == HEADLINE):
        own = [test for test in claim.tests if test.part == part and test.role != SUPPORT]
        here, others = _under(DEVICE, own, facts)
        under = {DEVICE: here}
        for condition in JUDGED:
            if condition in others:
                there, _ = _under(condition, own, facts)
                if any("measured" in row for row in there if row["role"] == HEADLINE):
                    under[condition] = there
        rows += [row for condition in JUDGED for row in under.get(condition, ())]
        words = {condition: found[0]["given"] for condition, found in under.items()}
        given.append(across(words, [condition for condition, found in under.items() if _may_be_reproduced(found)]))
        if MATCHED not in under:  # where the headline says nothing of that load, its effects may
            effects = _beside((test for test in own if test.role == EFFECT), facts)
            effects = [row for row in effects if row["condition"] == MATCHED]
            rows += effects
            nothing = all(row.get("reason") == NO_EFFECT for row in here if row["role"] == HEADLINE)
            if nothing and effects and all(row["outcome"] == HOLDS for row in effects):
                given[-1] = NOT_TESTED
    word = together(given)
    rows += _beside((test for test in claim.tests if test.role == SUPPORT), facts)
    head = {"claim_id": claim.id, "kind": claim.kind, "verdict": word}
    return [{**head, "test": number, **row} for number, row in enumerate(rows, start=1)]


def verdicts(folder: Path, claims: Sequence[Claim] | None = None) -> list[dict[str, Any]]:
    """The rows of verdicts.csv for the GPU measured in `folder`. Raises: DataError."""
    facts, earlier = Facts(folder), Facts(folder, earlier=True)
    rows = []
    for claim in load() if claims is None else claims:
        before = judge_claim(claim, earlier)[0]["verdict"]
        rows += [{**row, "before": before} for row in judge_claim(claim, facts)]
    return rows


def verdicts_of(slug: str) -> list[dict[str, Any]]:
    """The rows of verdicts.csv of a GPU, None where a cell is empty: as recorded, else computed from its data.

    Recorded ones count where no file beside them was written later; those of the committed record are its tests' care.
    Raises: DataError for an unknown GPU or a damaged file.
    """
    folder = gpu_folder(slug)
    path, data = folder / "verdicts.csv", [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if is_committed(slug) or (path in data and path.stat().st_mtime_ns >= max(p.stat().st_mtime_ns for p in data)):
        return read_records(path, "verdicts")
    made = [*DATA.glob("*.csv"), *DATA.glob("*.yml"), *(ROOT / "analysis").rglob("*.py")]
    return _computed(folder, BUILD / slug / f"verdicts-{digest([*(p for p in data if p != path), *made])[:16]}.csv")


@functools.lru_cache(maxsize=4)
def _computed(folder: Path, kept: Path) -> list[dict[str, Any]]:
    """The verdicts on what is measured in `folder`, kept for the book's other chapters: they take seconds."""
    if not kept.exists():
        for before in kept.parent.glob("verdicts-*.csv"):
            before.unlink(missing_ok=True)
        write_table(kept, "verdicts", verdicts(folder))
    return read_records(kept, "verdicts")


def recorded(slug: str) -> dict[str, list[dict[str, Any]]]:
    """The tests of `verdicts_of` a GPU by claim. Raises: DataError."""
    return {name: [*tests] for name, tests in itertools.groupby(verdicts_of(slug), key=lambda row: row["claim_id"])}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis claims", description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="", help="only this folder of data/measured; else all of them")
    options = parser.parse_args(arguments)
    try:
        claims = load()
        for folder in map(gpu_folder, [options.gpu] if options.gpu else known_gpus()):
            path = folder / "verdicts.csv"
            rows = verdicts(folder, claims)
            write_table(path, "verdicts", rows)
            found = {row["claim_id"]: row["verdict"] for row in rows}
            counted = ", ".join(f"{list(found.values()).count(verdict)} {verdict}" for verdict in VERDICTS)
            print(f"[claims] {len(found)} claims: {counted}; {len(rows)} tests in {path}")
    except DataError as error:
        print(f"claims: {error}", file=sys.stderr)
        return 1
    return 0
