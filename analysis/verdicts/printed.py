"""Every published number beside what was measured, counted or computed here, or the reason why nothing can be.

Of a time, a rate, a speedup or a percentage faster or slower the row's own columns say what stands beside it. Of the
rest data/printed.yml does: an expression in the language of claims.yml, or a reason.

What depends on the card (times, rates, bandwidths) is shown without a verdict; on the card that it was published for,
with its ratio. A speedup is judged as in the tables. What is counted or computed is **confirmed** where it agrees to
the last digit that is printed, or keeps within the bound, else it **differs**.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd

from kernels import VERSIONS

from ..measure.studies import SOURCE_TIMER
from ..records import published
from ..records.files import DATA, DataError, gpu_folder
from ..records.interval import Pool, Ratio
from . import claims
from .claims import Test
from .expressions import check_expression
from .facts import Facts
from .rule import Undecided, interval, stands

PRINTED = DATA / "printed.yml"
WORDS = ("unit", "note", "counted")
CONFIRMED, DIFFERS = "confirmed", "differs"
BYTES = {"B": (1,), "KB": (1000, 1024), "MB": (1e6, 2**20)}  # the documents mean now the one, now the other
OF_A_CARD = ("time_ms", "tflops", "bandwidth_gb_s")
SOURCES = {  # how the names in Facts.used begin, and what the book calls them
    "timings": "measured",
    "checks": "checked",
    "counters": "hardware counters",
    "counts": "emulator",
    "resources": "compiler",
    "plans": "launches",
    "gpu.json": "this GPU",
    "published.csv": "the document's numbers",
}
EXACT = {"counts", "resources", "plans", "published.csv", "checks"}


@dataclass(frozen=True)
class Entry:
    """What data/printed.yml says of one row: a measure, or why there is none."""

    tests: tuple[Test, ...] = ()
    rule: str = ""
    unit: str = ""
    note: str = ""
    counted: str = ""
    also: Mapping[str, Test] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Beside:
    """A published row and what stands beside it.

    `values` are in the unit of the row, times in µs and bytes in B. `outcome` is how they stand to what is
    published, empty where that is not compared; `reason` is why there are none.
    """

    row: Mapping[str, Any]
    values: tuple[Ratio, ...] = ()
    unit: str = ""
    sources: tuple[str, ...] = ()
    note: str = ""
    also: Mapping[str, float] = field(default_factory=dict)
    outcome: str = ""
    reason: str = ""
    counted: str = ""
    stale: bool = False
    same_card: bool = False


# ---------------------------------------------------------------- data/printed.yml


def _names(entry: Mapping[str, Any], key: str, length: int | None, what: str) -> list[dict[str, Any]]:
    """A mapping of names to lists of one length, a dict a place."""
    lists = entry.get(key, {})
    lengths = {len(values) for values in lists.values()} | ({length} if length else set())
    if len(lengths) > 1:
        raise DataError(f"{what}: the lists of {key} are not of one length")
    if not lists:
        return [{}] * (length or 1)
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _test(text: Any, names: Mapping[str, Any], known: Iterable[str], what: str) -> Test:
    check_expression(str(text), names, what)
    test = Test("", str(text), names=names)
    for version in claims.versions_of(test) - set(known):
        raise DataError(f"{what}: {version!r} is neither registered nor wanted by a claim")
    return test


def load(path: Path = PRINTED) -> dict[str, Entry]:
    """data/printed.yml by row. Raises: DataError naming the file, the row and what is wrong."""
    content = claims.read_yaml(path)
    stated = published.load()
    known = {*VERSIONS, *claims.wanted()}
    entries: dict[str, Entry] = {}

    def add(row: str, entry: Entry) -> None:
        if row not in set(stated["id"]):
            raise DataError(f"{path}: published.csv has no row {row}")
        if row in entries:
            raise DataError(f"{path}, {row}: it is there twice")
        entries[row] = entry

    for entry in content["numbers"]:
        what = f"{path}, {', '.join(entry.get('rows', ['an entry without rows']))}"
        quantities = set(stated[stated["id"].isin(entry.get("rows", []))]["quantity"])
        if len(quantities) > 1:
            raise DataError(f"{what}: they state different things: {', '.join(sorted(quantities))}")
        claims.check_fields(entry, what, ("rows", "measure"), ("each", "over", "also", "rule", *WORDS))
        if entry.get("rule", "most") not in ("most", "least"):
            raise DataError(f"{what}: rule is {entry['rule']!r}; allowed: most, least")
        for row, own in zip(entry["rows"], _names(entry, "each", len(entry["rows"]), what), strict=True):
            tests = [_test(entry["measure"], {**own, **one}, known, what) for one in _names(entry, "over", None, what)]
            also = {words: _test(text, own, known, what) for words, text in entry.get("also", {}).items()}
            words = {key: entry.get(key, "") for key in ("rule", *WORDS)}
            add(row, Entry(tuple(tests), also=also, **words))
    for entry in content["reasons"]:
        claims.check_fields(entry, f"{path}, reasons", ("because",), ("rows", "versions"))
        named = stated[stated["version"].isin(entry.get("versions", []))]["id"]
        for row in (*entry.get("rows", []), *named):
            add(row, Entry(reason=entry["because"]))
    return entries


# ---------------------------------------------------------------- what stands beside a row


def agrees(stated: float, value: float) -> bool:
    """Whether a value is the stated one to its last digit, rounded, or cut off where there are decimals.

    Zeros that end a number from 100 on are not digits; such a number may be 5 % off at most.
    """
    places = int(Decimal(f"{stated:.10g}").normalize().as_tuple().exponent)
    large = abs(stated) >= 100
    off = (value - stated) / 10.0 ** (places if large else min(places, 0))
    near = -0.5 <= off <= 0.5 or (0 < off < 1 and (large or places < 0))
    return near and not (large and abs(value - stated) > 0.05 * abs(stated))


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """The shape that a row states, in the words that `Facts` takes."""
    names = ("batch", "heads", "seq_q", "seq_k", "rotary_dim")
    return {name: int(row[name]) for name in names if row[name] is not None}


def _timed(version: str) -> pd.DataFrame:
    """The published times of a version."""
    stated = published.load()
    return stated[(stated["version"] == version) & (stated["quantity"] == "time_ms")]


def _speeds(row: Mapping[str, Any], facts: Facts, timer: str = "device_warm") -> list[pd.Series]:
    """How many times as fast as its baseline a version is: at the row's shape, else at each head dim that the document,
    or any, states a time of it for."""
    version, baseline = row["version"], row["baseline"]
    if row["hdim"] is not None:
        return [facts.speed(version, baseline, int(row["hdim"]), timer, **_columns(row))]
    timed = _timed(version).dropna(subset=["hdim"])
    said_here = timed[timed["source_document"] == row["source_document"]]
    found, refused = [], "no head dim has a published time"
    for hdim in sorted(set((timed if said_here.empty else said_here)["hdim"])):
        try:
            found.append(facts.speed(version, baseline, int(hdim), timer))
        except Undecided as why:
            refused = str(why)
    if not found:
        raise Undecided(refused)
    return found


def _is_speed(row: Mapping[str, Any]) -> bool:
    """Whether a row says how much faster or slower one version is than another."""
    return row["quantity"] == "speedup" or bool(row["sense"])


def _sense(row: Mapping[str, Any]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """From how many times as fast to the row's own sense, and back."""
    if row["quantity"] == "speedup":
        return (lambda x: 1 / x,) * 2 if row["unit"] == "x_slower" else (lambda x: x,) * 2
    if row["sense"] == "slower":
        return lambda x: 100 * (1 / x - 1), lambda y: 1 / (1 + y / 100)
    return lambda x: 100 * (x - 1), lambda y: 1 + y / 100


def _end(row: Mapping[str, Any], values: Sequence[Ratio]) -> tuple[Ratio, ...]:
    """All values, or the least or largest where a row states one end of a range."""
    pick = {"low": min, "high": max}.get(row["limit"])
    return (pick(values),) if pick and values else tuple(values)


def _each_end(change: Callable[[float], float], value: Ratio) -> Ratio:
    """A value and its interval in another sense, in which the ends may change places."""
    low, high = sorted((change(value.low), change(value.high)))
    return Ratio(change(value.value), low, high, value.runs)


def _beside_speed(row: Mapping[str, Any], speeds: Sequence[Ratio]) -> tuple[tuple[Ratio, ...], str]:
    there, back = _sense(row)
    values = _end(row, [_each_end(there, speed) for speed in speeds])
    words = set()
    for value in values:
        words.add(stands(back(row["value"]), _each_end(back, value)))
    return values, words.pop() if len(words) == 1 else "differs by head dim"


def _outcome(row: Mapping[str, Any], entry: Entry, values: Sequence[Ratio]) -> str:
    """Whether exact values are what is stated, or within the bound that is."""
    rule = entry.rule or (row["limit"] if row["limit"] in ("least", "most") else "")
    for scale in BYTES.get(row["unit"], (1,)) if row["quantity"] == "bytes" else (1,):
        found = [value.value / scale for value in values]
        if rule and all(one <= row["value"] if rule == "most" else one >= row["value"] for one in found):
            return CONFIRMED
        if not rule and all(agrees(row["value"], one) for one in found):
            return CONFIRMED
    return DIFFERS


def _rule(row: Mapping[str, Any], facts: Facts) -> list[Any]:
    """What the row's own columns say stands beside it. Raises: Undecided; LookupError where they say nothing."""
    known = row["version"] in VERSIONS
    if known and row["hdim"] is not None and row["quantity"] == "time_ms":
        return [facts.us(row["version"], int(row["hdim"]), **_columns(row))]
    if known and row["hdim"] is not None and row["quantity"] == "tflops":
        return [facts.tflops(row["version"], int(row["hdim"]), **_columns(row))]
    if known and row["baseline"] in VERSIONS and _is_speed(row):
        return _speeds(row, facts)
    raise LookupError


def _value(row: Mapping[str, Any], raw: Any, pools: Mapping[str, Pool]) -> Ratio:
    """A time as in the other tables, the mean of the processes and their range; else the mean and its interval."""
    if row["quantity"] == "time_ms" and isinstance(raw, pd.Series):
        return Ratio(interval(raw, {}).value, float(raw.min()), float(raw.max()))
    return interval(raw, pools)


def _further(row: Mapping[str, Any], facts: Facts) -> dict[str, float]:
    """A time or speedup with launches and syncs timed, as the sources time it; the rate that a printed time gives."""
    if row["hdim"] is None:
        return {}
    try:
        if row["quantity"] == "tflops":
            timed = _timed(row["version"])
            timed = timed[timed["hdim"] == row["hdim"]]
            flops = facts.size(row["version"], "flops", int(row["hdim"]), **_columns(row))
            return {"its published time gives": flops / timed["value"].iloc[0] / 1e9} if len(timed) else {}
        if row["quantity"] == "time_ms":
            raw = facts.us(row["version"], int(row["hdim"]), SOURCE_TIMER, **_columns(row))
            return {SOURCE_TIMER: _value(row, raw, facts.pools).value}
        return {SOURCE_TIMER: interval(_sense(row)[0](_speeds(row, facts, SOURCE_TIMER)[0]), facts.pools).value}
    except Undecided:
        return {}


def stand(row: Mapping[str, Any], entry: Entry | None, facts: Facts) -> Beside:
    """What stands beside one row of published.csv."""
    given = entry or Entry()
    if given.reason:
        return Beside(row, reason=given.reason)
    facts.used, facts.stale = {}, {}
    try:
        raw = [claims.measure(test, facts) for test in given.tests] or _rule(row, facts)
        used, stale = {name.split(" ")[0] for name in facts.used}, bool(facts.stale)
        also = {words: interval(claims.measure(test, facts), facts.pools).value for words, test in given.also.items()}
    except Undecided as why:
        return Beside(row, reason=str(why), counted=given.counted)
    except LookupError:
        raise DataError(f"{PRINTED}: nothing says what stands beside {row['id']}") from None
    if _is_speed(row) and not given.unit and "timings" in used:
        values, outcome = _beside_speed(row, [interval(one, facts.pools) for one in raw])
    else:
        values = _end(row, [_value(row, one, facts.pools) for one in raw])
        exact = row["quantity"] not in OF_A_CARD and used <= EXACT and not given.unit
        outcome = _outcome(row, given, values) if exact else ""
    also |= {} if given.tests else _further(row, facts)
    unit = given.unit or {"time_ms": "µs", "bytes": "B"}.get(row["quantity"], row["unit"] or "")
    sources = tuple(SOURCES[name] for name in SOURCES if name in used) or ("arithmetic",)
    same = not given.unit and bool(row["gpu"]) and row["gpu"] in facts.identity["name"]
    words = {"note": given.note, "counted": given.counted}
    return Beside(row, values, unit, sources, also=also, outcome=outcome, stale=stale, same_card=same, **words)


def beside(slug: str) -> list[Beside]:
    """Every row of published.csv, the write-up's first, and what stands beside it. Raises: DataError."""
    return stand_all(Facts(gpu_folder(slug)))


def stand_all(facts: Facts) -> list[Beside]:
    entries = load()
    frame = published.load().astype(object)
    rows = frame.where(frame.notna(), None).to_dict("records")
    return [stand(row, entries.get(row["id"]), facts) for row in rows]
