"""A verdict for every claim of the documents, from data alone: `python -m analysis claims` writes verdicts.csv.

data/claims.yml says of each claim which tests decide it; the words of a test are described at its head. A test is an
expression over `facts.Facts` and what its value must be. Timings give a value a process and so an interval over the
processes; counts, bytes and what the documents print are exact.

What follows from the tests is said in analysis/verdicts/rule.py.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
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
    read_records,
    write_table,
)
from ..records.lock import locked
from . import expressions
from .expressions import check_expression, rows_in, versions_in
from .facts import Facts
from .rule import UNDECIDED, VERDICTS, Undecided, combine, decide, interval

CLAIMS = DATA / "claims.yml"
ROLES = ("test", "premise", "figure")
RULES = ("published", "least", "most", "between", "equals")
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
    role: str = "test"
    undecided: str = ""
    names: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    id: str
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


def _tests(entry: Any, what: str) -> Iterator[Test]:
    if isinstance(entry, dict) and "undecided" in entry:
        check_fields(entry, what, ("note", "undecided"), ())
        yield Test(note=entry["note"], undecided=entry["undecided"])
        return
    check_fields(entry, what, ("note", "measure"), (*RULES, "unit", "digits", "role", "each"))
    rules = [name for name in RULES if name in entry]
    if len(rules) != 1:
        raise DataError(f"{what}: exactly one of {', '.join(RULES)} is due, there is {', '.join(rules) or 'none'}")
    (rule,) = rules
    bounds = entry[rule] if isinstance(entry[rule], list) else [entry[rule]]
    if len(bounds) > (2 if rule in PAIRS else 1) or (rule == "between" and len(bounds) < 2):
        raise DataError(f"{what}: {rule} has {len(bounds)} bounds")
    if "digits" in entry and rule != "equals":
        raise DataError(f"{what}: digits belong to equals, not to {rule}")
    role = entry.get("role", "test")
    if role not in ROLES:
        raise DataError(f"{what}: role is {role!r}; allowed: {', '.join(ROLES)}")
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
        test = Test(
            note,
            str(entry["measure"]),
            rule,
            tuple(str(bound) for bound in bounds),
            entry.get("unit", "x" if rule == "published" else ""),
            entry.get("digits"),
            role,
            names=names,
        )
        for text in (test.measure, *test.bounds):
            check_expression(text, names, what)
        yield test


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
    return list(_load(path, path.stat().st_mtime_ns if path.exists() else 0))


@functools.cache
def _load(path: Path, changed: int) -> tuple[Claim, ...]:
    content = read_yaml(path)
    check_fields(content, str(path), ("wanted", "claims"), ())
    stated = set(published.load()["id"])
    claims: dict[str, Claim] = {}
    for place, entry in enumerate(content["claims"], start=1):
        name = entry.get("id", f"claim {place}") if isinstance(entry, dict) else f"claim {place}"
        what = f"{path}, {name}"
        check_fields(entry, what, ("id", "claim", "sources", "decides"), ("quote", "contradicts"))
        if not re.fullmatch(r"[A-E]-\d\d", str(name)):
            raise DataError(f"{what}: an id is a letter from A to E and two digits, such as A-01")
        if name in claims:
            raise DataError(f"{what}: the id is taken")
        for source in entry["sources"]:
            check_fields(source, f"{what}, source", ("document", "place"), ())
            if source["document"] not in published.DOCUMENTS:
                allowed = "; ".join(published.DOCUMENTS)
                raise DataError(f"{what}: document is {source['document']!r}; allowed: {allowed}")
        tests = [
            test
            for number, one in enumerate(entry["decides"], start=1)
            for test in _tests(one, f"{what}, entry {number} of decides")
        ]
        if not tests:
            raise DataError(f"{what}: nothing decides it")
        for test in tests:
            for version in versions_of(test):
                if version not in VERSIONS and version not in content["wanted"]:
                    raise DataError(f"{what}: {version!r} is neither registered nor listed under wanted")
            unknown = rows_of(test) - stated
            if unknown:
                raise DataError(f"{what}: published.csv has no row {unknown.pop()}")
        claims[name] = Claim(
            name,
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


def versions_of(test: Test) -> set[str]:
    """The versions that a test names."""
    return {version for text in (test.measure, *test.bounds) for version in versions_in(text, test.names)}


def rows_of(test: Test) -> set[str]:
    """The rows of published.csv that a test names."""
    return {row for text in (test.measure, *test.bounds) for row in rows_in(text, test.names)}


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
    words = {"least": "at least", "most": "at most"}.get(rule, rule)
    joint = " and " if rule == "between" else " to "
    exact = f" to {digits} digits" if digits else ""
    return f"{words} {joint.join(f'{_plain(bound):.6g}' for bound in bounds)}{exact}"


def judge(test: Test, facts: Facts) -> dict[str, Any]:
    """The columns of one test in verdicts.csv."""
    row: dict[str, Any] = {"says": test.note, "role": test.role, "unit": test.unit}
    if test.undecided:
        return {**row, "outcome": UNDECIDED, "reason": test.undecided}
    facts.used, facts.stale = {}, {}
    try:
        bounds = [float(expressions.measure(text, facts, test.names)) for text in test.bounds]
        bounds.sort()
        row |= {"rule": _rule(test.rule, bounds, test.digits)}
        if len(bounds) == 1:
            row["published"] = _plain(bounds[0])
        value = measure(test, facts)
        measured = interval(value)
        if math.isnan(measured.value):
            raise Undecided("it has no value")
        outcome = decide(test.rule, bounds, measured, test.digits)
        row |= {"outcome": outcome, "measured": _plain(measured.value)}
        if isinstance(value, pd.Series):
            row |= {"low": _plain(measured.low), "high": _plain(measured.high)}
        if outcome == UNDECIDED:
            alone = math.isnan(measured.low)
            row["reason"] = "a single process has no interval" if alone else "the interval straddles the bounds"
    except Undecided as why:
        row |= {"outcome": UNDECIDED, "reason": str(why)}
    except ZeroDivisionError:
        row |= {"outcome": UNDECIDED, "reason": "it divides by a count of zero"}
    stale = [f"stale: {', '.join(facts.stale)}"] if facts.stale else []
    return {**row, "evidence": "; ".join([*facts.used, *stale])}


def verdicts(folder: Path, claims: Sequence[Claim] | None = None) -> list[dict[str, Any]]:
    """The rows of verdicts.csv for the GPU measured in `folder`: one a test. Raises: DataError."""
    facts = Facts(folder)
    rows = []
    for claim in load() if claims is None else claims:
        judged = [judge(test, facts) for test in claim.tests]
        verdict = combine((row["outcome"], row["role"]) for row in judged)
        rows += [
            {"claim_id": claim.id, "verdict": verdict, "test": number, **row}
            for number, row in enumerate(judged, start=1)
        ]
    return rows


def verdicts_of(slug: str) -> list[dict[str, Any]]:
    """The rows of verdicts.csv of a GPU, None where a cell is empty: as recorded, else computed from its data.

    Recorded ones count where no file beside them was written later; those of the committed record are its tests' care.
    Raises: DataError for an unknown GPU or a damaged file.
    """
    folder = gpu_folder(slug)
    path, data = folder / "verdicts.csv", [path for path in sorted(folder.iterdir()) if path.is_file()]
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
    parser.add_argument("--wait", action="store_true", help="wait while another command writes to a folder")
    options = parser.parse_args(arguments)
    try:
        claims = load()
        for folder in map(gpu_folder, [options.gpu] if options.gpu else known_gpus()):
            path = folder / "verdicts.csv"
            with locked(folder, options.wait):
                rows = verdicts(folder, claims)
                write_table(path, "verdicts", rows)
            found = {row["claim_id"]: row["verdict"] for row in rows}
            counted = ", ".join(f"{list(found.values()).count(verdict)} {verdict}" for verdict in VERDICTS)
            print(f"[claims] {len(found)} claims: {counted}; {len(rows)} tests in {path}")
    except DataError as error:
        print(f"claims: {error}", file=sys.stderr)
        return 1
    return 0
