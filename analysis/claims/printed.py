"""Every published number beside what was measured, counted or computed here, or the reason why nothing can be.

Of a time, a rate, a speedup or a percentage faster or slower the row's own columns say what stands beside it. Of the
rest printed_embeddings.py and printed_attention.py do, or the column `why_none`.

What depends on the card (times, rates, bandwidths) is shown without a verdict; on the card that it was published for,
with its ratio. A speedup is judged as in the tables. What is counted or computed is **confirmed** where it agrees to
the last digit that is printed, or keeps within the bound, else it **differs**.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd

from kernels import VERSIONS

from ..evidence import Estimate, Estimates, Evidence, Undecided
from ..measure.studies import SOURCE_TIMER
from ..record import published
from . import judge
from .rule import stands

CONFIRMED, DIFFERS = "confirmed", "differs"
BYTES = {"B": (1,), "KB": (1000, 1024), "MB": (1e6, 2**20)}  # the documents mean now the one, now the other
OF_A_CARD = ("time_ms", "tflops", "bandwidth_gb_s")
SOURCES = {  # how the sources of an estimate begin, and what the book calls them
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
Row = Mapping[str, Any]
Number = Estimate | float
Numbers = Estimates | Number


# ---------------------------------------------------------------- what stands beside rows


class Also(NamedTuple):
    """Values with further ones of the same thing, in words."""

    values: Numbers | Sequence[Numbers]
    also: Mapping[str, Numbers | Sequence[Numbers]]


# By rows, named by their ids: as many values as rows are one for each row, else all of them stand beside each.
Values = Mapping[str, Numbers | Sequence[Numbers] | Also]


class Entry(NamedTuple):
    """What stands beside one row: values in B, us, how many times as fast, or the row's own unit."""

    values: tuple[Estimate, ...]
    also: Mapping[str, Estimate]


def entries(e: Evidence) -> dict[str, Entry]:
    """By row, what stands beside it where its own columns do not say so."""
    found: dict[str, Entry] = {}
    for name in ("printed_embeddings", "printed_attention"):
        for ask in importlib.import_module(f".{name}", __package__).MEASURED:
            for rows, given in ask(e).items():
                values, also = given if isinstance(given, Also) else (given, {})
                ids = rows.split()
                further = {words: _by_row(some, len(ids)) for words, some in also.items()}
                for place, (row, mine) in enumerate(zip(ids, _by_row(values, len(ids)), strict=True)):
                    if row in found:
                        raise ValueError(f"{row} is there twice")
                    found[row] = Entry(mine, {words: some[place][0] for words, some in further.items()})
    return found


def _by_row(values: Numbers | Sequence[Numbers], rows: int) -> list[tuple[Estimate, ...]]:
    flat = tuple(_flat(values))
    return [(value,) for value in flat] if len(flat) == rows else [flat] * rows


def _flat(values: Numbers | Sequence[Numbers]) -> Iterator[Estimate]:
    if isinstance(values, Estimates):
        yield from values.values()
    elif isinstance(values, Sequence):
        for value in values:
            yield from _flat(value)
    else:
        yield values if isinstance(values, Estimate) else Estimate.exact(values)


# ---------------------------------------------------------------- one row


@dataclass(frozen=True)
class Beside:
    """A published row and what stands beside it, and the claims that name it.

    `values` are in the unit of the row, times in µs and bytes in B. `outcome` is how they stand to what is
    published, empty where that is not compared; `reason` is why there are none.
    """

    row: Row
    values: tuple[Estimate, ...] = ()
    unit: str = ""
    sources: tuple[str, ...] = ()
    note: str = ""
    also: Mapping[str, float] = field(default_factory=dict)
    outcome: str = ""
    reason: str = ""
    counted: str = ""
    stale: bool = False
    same_card: bool = False
    claims: tuple[str, ...] = ()


def agrees(stated: float, value: float) -> bool:
    """Whether a value is the stated one to its last digit, rounded, or cut off where there are decimals.

    Zeros that end a number from 100 on are not digits; such a number may be 5 % off at most.
    """
    places = int(Decimal(f"{stated:.10g}").normalize().as_tuple().exponent)
    large = abs(stated) >= 100
    off = (value - stated) / 10.0 ** (places if large else min(places, 0))
    near = -0.5 <= off <= 0.5 or (0 < off < 1 and (large or places < 0))
    return near and not (large and abs(value - stated) > 0.05 * abs(stated))


def _columns(row: Row) -> dict[str, Any]:
    """The shape that a row states, in the words that `Evidence` takes."""
    names = ("batch", "heads", "seq_q", "seq_k", "rotary_dim")
    return {name: int(row[name]) for name in names if row[name] is not None}


def _timed(version: str) -> pd.DataFrame:
    """The published times of a version."""
    stated = published.load()
    return stated[(stated["version"] == version) & (stated["quantity"] == "time_ms")]


def _known(value: Estimate) -> Estimate:
    """Raises: Undecided where there is no value."""
    if value.why:
        raise Undecided(str(value.why), value.why.word)
    return value


def _speeds(row: Row, e: Evidence, timer: str = "device_warm") -> list[Estimate]:
    """How many times as fast as its baseline a version is: at the row's shape, else at each head dim that the document,
    or any, states a time of it for. Raises: Undecided."""
    version, baseline = row["version"], row["baseline"]
    if row["hdim"] is not None:
        asked = e.speedup(version, baseline, timer=timer, hdim=int(row["hdim"]), **_columns(row))
        return [_known(one) for one in asked.values()]
    timed = _timed(version).dropna(subset=["hdim"])
    said_here = timed[timed["source_document"] == row["source_document"]]
    hdims = sorted({int(hdim) for hdim in (timed if said_here.empty else said_here)["hdim"]})
    asked = e.speedup(version, baseline, timer=timer, hdim=hdims)
    found = list(asked.known.values())
    if not found:
        raise Undecided(str(asked.why) if hdims else "no head dim has a published time")
    return found


def _is_speed(row: Row) -> bool:
    """Whether a row says how much faster or slower one version is than another."""
    return row["quantity"] == "speedup" or bool(row["sense"])


def _sense(row: Row) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """From how many times as fast to the row's own sense, and back."""
    if row["quantity"] == "speedup":
        return (lambda x: 1 / x,) * 2 if row["unit"] == "x_slower" else (lambda x: x,) * 2
    if row["sense"] == "slower":
        return lambda x: 100 * (1 / x - 1), lambda y: 1 / (1 + y / 100)
    return lambda x: 100 * (x - 1), lambda y: 1 + y / 100


def _end(row: Row, values: Sequence[Estimate]) -> tuple[Estimate, ...]:
    """All values, or the least or largest where a row states one end of a range."""
    pick = {"low": min, "high": max}.get(row["limit"])
    return (pick(values, key=lambda each: each.value),) if pick and values else tuple(values)


def _changed(change: Callable[[float], float], value: Estimate) -> Estimate:
    """A value and its interval in another sense, in which the ends may change places."""
    low, high = sorted((change(value.low), change(value.high)))
    return Estimate(change(value.value), low, high)


def _beside_speed(row: Row, speeds: Sequence[Estimate]) -> tuple[tuple[Estimate, ...], str]:
    there, back = _sense(row)
    values = _end(row, [_changed(there, speed) for speed in speeds])
    words = {stands(back(row["value"]), _changed(back, value)) for value in values}
    return values, words.pop() if len(words) == 1 else "differs by head dim"


def _outcome(row: Row, values: Sequence[Estimate]) -> str:
    """Whether exact values are what is stated, or within the bound that is."""
    rule = row["limit"] if row["limit"] in ("least", "most") else ""
    for scale in BYTES.get(row["unit"], (1,)) if row["quantity"] == "bytes" else (1,):
        found = [value.value / scale for value in values]
        if rule and all(one <= row["value"] if rule == "most" else one >= row["value"] for one in found):
            return CONFIRMED
        if not rule and all(agrees(row["value"], one) for one in found):
            return CONFIRMED
    return DIFFERS


def _by_columns(row: Row, e: Evidence) -> list[Estimate]:
    """What the row's own columns say stands beside it. Raises: Undecided; LookupError where they say nothing."""
    known = row["version"] in VERSIONS
    if known and row["hdim"] is not None and row["quantity"] in ("time_ms", "tflops"):
        ask = e.time if row["quantity"] == "time_ms" else e.tflops
        return list(ask(row["version"], hdim=int(row["hdim"]), **_columns(row)).values())
    if known and row["baseline"] in VERSIONS and _is_speed(row):
        return _speeds(row, e)
    raise LookupError


def _shown(row: Row, value: Estimate) -> Estimate:
    """A time as in the other tables: the mean of the processes and their range."""
    if row["quantity"] == "time_ms" and value.sample is not None:
        return Estimate(value.value, float(value.sample.values.min()), float(value.sample.values.max()))
    return value


def _further(row: Row, e: Evidence) -> dict[str, float]:
    """A time or speedup with launches and syncs timed, as the sources time it; the rate that a printed time gives."""
    if row["hdim"] is None:
        return {}
    hdim = int(row["hdim"])
    try:
        if row["quantity"] == "tflops":
            timed = _timed(row["version"])
            timed = timed[timed["hdim"] == row["hdim"]]
            flops = _known(e.size(row["version"], "flops", hdim=hdim, **_columns(row))[hdim])
            return {"its published time gives": flops.value / timed["value"].iloc[0] / 1e9} if len(timed) else {}
        if row["quantity"] == "time_ms":
            return {
                SOURCE_TIMER: _known(e.time(row["version"], "", SOURCE_TIMER, hdim=hdim, **_columns(row))[hdim]).value
            }
        return {SOURCE_TIMER: _sense(row)[0](_speeds(row, e, SOURCE_TIMER)[0].value)}
    except Undecided:
        return {}


def stand(row: Row, entry: Entry | None, e: Evidence) -> Beside:
    """What stands beside one row of published.csv. Raises: ValueError where nothing says what does."""
    unit, counted = row["here_unit"] or "", row["counted"] or ""
    if row["why_none"]:
        return Beside(row, reason=row["why_none"])
    try:
        found = [_known(value) for value in (entry.values if entry else _by_columns(row, e))]
        also = {words: _known(value).value for words, value in (entry.also if entry else {}).items()}
    except Undecided as why:
        return Beside(row, reason=str(why), counted=counted)
    except LookupError:
        raise ValueError(f"nothing says what stands beside {row['id']}") from None
    used = {source.split(" ")[0] for value in found for source in value.sources}
    if _is_speed(row) and not unit and "timings" in used:
        values, outcome = _beside_speed(row, found)
    else:
        values = _end(row, [_shown(row, value) for value in found])
        exact = row["quantity"] not in OF_A_CARD and used <= EXACT and not unit
        outcome = _outcome(row, values) if exact else ""
    return Beside(
        row,
        values,
        unit or {"time_ms": "µs", "bytes": "B"}.get(row["quantity"], row["unit"] or ""),
        tuple(SOURCES[name] for name in SOURCES if name in used) or ("arithmetic",),
        note=row["here_note"] or "",
        also=also or ({} if entry else _further(row, e)),
        outcome=outcome,
        counted=counted,
        stale=any(value.stale for value in found),
        same_card=not unit and bool(row["gpu"]) and row["gpu"] in e.gpu["name"],
    )


def beside(e: Evidence) -> list[Beside]:
    """Every row of published.csv, the write-up's first, and what stands beside it. Raises: DataError."""
    known, named = entries(e), judge.named(e.slug)
    by_row: dict[str, tuple[str, ...]] = {}
    for claim, names in named.items():
        for name in names:
            by_row[name] = (*by_row.get(name, ()), claim)
    frame = published.load().astype(object)
    rows = frame.where(frame.notna(), None).to_dict("records")
    return [replace(stand(row, known.get(row["id"]), e), claims=by_row.get(row["id"], ())) for row in rows]
