"""Every published number beside what was measured, counted or computed here, or the reason why nothing can be.

Of a time, a rate, a speedup or a percentage faster or slower the row's own columns say what stands beside it. Of the
rest data/twins.yml does: an expression in the language of claims.yml, or a reason.

What depends on the card (times, rates, bandwidths) is shown without a verdict; on the card that it was published for,
with its ratio. A speedup is judged as in the tables. What is counted or computed is **confirmed** where it agrees to
the last digit that is printed, or keeps within the bound, else it **differs**.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from kernels import VERSIONS

from ..book.tables import NOTHING, SOURCE_TIMER, Table, link, small
from ..records import published
from ..records.files import DATA, DataError, gpu_folder
from ..records.measured import Ratio, verdict
from . import claims
from .claims import Test, interval
from .expressions import check_expression
from .facts import Facts, Undecided

TWINS = DATA / "twins.yml"
WORDS = ("unit", "note", "counted")
CONFIRMED, DIFFERS = "confirmed", "differs"
BYTES = {"B": (1,), "KB": (1000, 1024), "MB": (1e6, 2**20)}  # the documents mean now the one, now the other
OF_A_CARD = ("time_ms", "tflops", "bandwidth_gb_s")
PERCENT = re.compile(r"what: (faster|slower|speedup|regression|improvement)")
BOUND = re.compile(r"\((upper|lower) bound")
END = re.compile(r"\b(lower|upper) end\b|\((low|high)\)")
BOILERPLATE = re.compile(r"what: |(gpu|shape|hdim|rotary_dim) from|not printed in a document|published as ")
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
class Twin:
    """What data/twins.yml says of one row: a measure, or why there is none."""

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


# ---------------------------------------------------------------- data/twins.yml


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


def load(path: Path = TWINS) -> dict[str, Twin]:
    """data/twins.yml by row. Raises: DataError naming the file, the row and what is wrong."""
    content = claims.read_yaml(path)
    stated = published.load()
    known = {*VERSIONS, *claims.wanted()}
    twins: dict[str, Twin] = {}

    def add(row: str, twin: Twin) -> None:
        if row not in set(stated["id"]):
            raise DataError(f"{path}: published.csv has no row {row}")
        if row in twins:
            raise DataError(f"{path}, {row}: it is there twice")
        twins[row] = twin

    for entry in content["twins"]:
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
            add(row, Twin(tuple(tests), also=also, **words))
    for entry in content["reasons"]:
        claims.check_fields(entry, f"{path}, reasons", ("because",), ("rows", "versions"))
        named = stated[stated["version"].isin(entry.get("versions", []))]["id"]
        for row in (*entry.get("rows", []), *named):
            add(row, Twin(reason=entry["because"]))
    return twins


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
    return row["quantity"] == "speedup" or (row["quantity"] == "percent" and bool(PERCENT.search(row["note"] or "")))


def _sense(row: Mapping[str, Any]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """From how many times as fast to the row's own sense, and back."""
    word = (PERCENT.search(row["note"] or "") or ["", ""])[1]
    if row["quantity"] == "speedup":
        return (lambda x: 1 / x,) * 2 if row["unit"] == "x_slower" else (lambda x: x,) * 2
    if word in ("slower", "regression"):
        return lambda x: 100 * (1 / x - 1), lambda y: 1 / (1 + y / 100)
    return lambda x: 100 * (x - 1), lambda y: 1 + y / 100


def _end(row: Mapping[str, Any], values: Sequence[Ratio]) -> tuple[Ratio, ...]:
    """All values, or the least or largest where a row states one end of a range."""
    named = END.search(row["note"] or "")
    if named is None or len(values) < 2:
        return tuple(values)
    return (min(values) if "low" in named[0] else max(values),)


def _beside_speed(row: Mapping[str, Any], speeds: Sequence[Any]) -> tuple[tuple[Ratio, ...], str]:
    there, back = _sense(row)
    values = _end(row, [interval(there(speed)) for speed in speeds])
    words = set()
    for value in values:
        stated, ends = back(row["value"]), sorted((back(value.low), back(value.high)))
        words.add(verdict(stated, Ratio(back(value.value), *ends)))
    return values, words.pop() if len(words) == 1 else "differs by head dim"


def _outcome(row: Mapping[str, Any], twin: Twin, values: Sequence[Ratio]) -> str:
    """Whether exact values are what is stated, or within the bound that is."""
    bound = BOUND.search(row["note"] or "")
    rule = twin.rule or {"upper": "most", "lower": "least"}.get(bound[1] if bound else "", "")
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


def _value(row: Mapping[str, Any], raw: Any) -> Ratio:
    """A time as in the other tables, the median of the processes and their range; else the mean and its interval."""
    if row["quantity"] == "time_ms" and isinstance(raw, pd.Series):
        return Ratio(float(raw.median()), float(raw.min()), float(raw.max()))
    return interval(raw)


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
            return {SOURCE_TIMER: _value(row, raw).value}
        return {SOURCE_TIMER: interval(_sense(row)[0](_speeds(row, facts, SOURCE_TIMER)[0])).value}
    except Undecided:
        return {}


def stand(row: Mapping[str, Any], twin: Twin | None, facts: Facts) -> Beside:
    """What stands beside one row of published.csv."""
    given = twin or Twin()
    if given.reason:
        return Beside(row, reason=given.reason)
    facts.used, facts.stale = {}, {}
    try:
        raw = [claims.measure(test, facts) for test in given.tests] or _rule(row, facts)
        used, stale = {name.split(" ")[0] for name in facts.used}, bool(facts.stale)
        also = {words: interval(claims.measure(test, facts)).value for words, test in given.also.items()}
    except Undecided as why:
        return Beside(row, reason=str(why), counted=given.counted)
    except LookupError:
        raise DataError(f"{TWINS}: nothing says what stands beside {row['id']}") from None
    if _is_speed(row) and not given.unit and "timings" in used:
        values, outcome = _beside_speed(row, raw)
    else:
        values = _end(row, [_value(row, one) for one in raw])
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
    twins = load()
    frame = published.load().astype(object)
    rows = frame.where(frame.notna(), None).to_dict("records")
    return [stand(row, twins.get(row["id"]), facts) for row in rows]


# ---------------------------------------------------------------- tables

UNITS = {"x_faster": "× as fast", "x_slower": "× as long", "x_factor": "×", "x": "×", "count": "", "ops": "", "abs": ""}
STYLE = {CONFIRMED: "ok", DIFFERS: "wrong", "opposite": "wrong", "not a tie": "wrong"}


def _unit(unit: str) -> str:
    word = UNITS.get(unit, unit)
    return word if not word or word.startswith("×") else f" {word}"


def number(value: float, unit: str = "") -> str:
    """A number with its thousands parted, to the digits that its unit deserves."""
    if unit == "µs":
        return f"{value:,.1f}"
    if unit == "TFLOPS":
        return f"{value:.3f}"
    if unit.startswith(("x", "×")):
        return f"{value:.2f}".replace("-", "−")
    if unit.startswith("%"):
        return f"{value:.1f}".replace("-", "−")
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}".replace("-", "−") if abs(value) >= 1e-3 else f"{value:.1e}".replace("e-0", "e−")


def _stated(row: Mapping[str, Any]) -> str:
    return f"{row['value']:,.10g}".replace("-", "−") + _unit(row["unit"] or "")


def _here(one: Beside) -> str:
    """The value with its spread, or the least and largest of several."""
    if not one.values:
        return NOTHING
    found = [number(value.value, one.unit) for value in (min(one.values), max(one.values))]
    spread = ""
    if len(one.values) == 1:
        low, high = (number(bound, one.unit) for bound in one.values[0][1:])
        spread = f" {small(f'({low}–{high})')}" if low != high else ""
    unit = _unit(one.unit)
    lines = ["–".join(dict.fromkeys(found)) + unit + spread]
    lines += [small(f"{escape(words)}: {number(value, one.unit)}{unit}") for words, value in one.also.items()]
    origin = "" if one.sources == (SOURCES["timings"],) else ", ".join(one.sources)
    lines.append(small(escape("; ".join(part for part in (origin, one.note) if part))))
    return "<br>".join(line for line in lines if line != small(""))


def _ratio(one: Beside) -> str:
    """The value over the published number, where that means something."""
    row = one.row
    same_rate = one.same_card and row["quantity"] in OF_A_CARD
    if len(one.values) != 1 or not (one.outcome or same_rate):
        return ""
    if one.outcome == CONFIRMED or row["quantity"] == "percent" or not row["value"]:
        return ""
    scale = {"bytes": BYTES.get(row["unit"], (1,))[-1], "time_ms": 1000}.get(row["quantity"], 1)
    return small(f"{one.values[0].value / scale / row['value']:.2g} of the published")


def _judged(one: Beside, judges: Mapping[str, Sequence[str]]) -> str:
    lines = [f"<span class='status {STYLE.get(one.outcome, 'neutral')}'>{one.outcome}</span>"] if one.outcome else []
    if not one.outcome and one.values and not one.same_card:
        lines = [small("another card" if one.row["quantity"] in OF_A_CARD else "another quantity")]
    if one.reason:
        lines = [small(escape(one.reason))]
    if one.stale:
        lines.append("<span class='status stale'>stale</span>")
    links = ", ".join(f"<a href='claims.html#{claim}'>{claim}</a>" for claim in judges.get(one.row["id"], ()))
    lines += [_ratio(one), small(f"claim {links}") if links else ""]
    return "<br>".join(line for line in lines if line)


def _what(row: Mapping[str, Any]) -> str:
    """Whose number it is, at which shape, and what the document says of it."""
    over = f" over {link(row['baseline'])}" if row["baseline"] else ""
    shape = [f"{label} {int(row[name])}" for name, label in (("hdim", "hdim"), ("rotary_dim", "R")) if row[name]]
    if row["heads"] and row["seq_q"]:
        shape.append(f"{int(row['heads'])} × {int(row['seq_q'])}")
    said = re.search(r"what: ([^;]*)", row["note"] or "")
    notes = [part.strip() for part in (row["note"] or "").split(";")]
    kept = [part for part in notes if part and not BOILERPLATE.match(part)]
    line = row["locator"].partition("; ")[2] if row["source_document"] in published.DOCUMENTS else row["locator"]
    parts = [", ".join(shape), said[1] if said else "", *kept, line]
    about = small(escape("; ".join(part for part in parts if part)))
    return f"<span id='{row['id']}'>{row['id']}</span> {link(row['version'] or '')}{over}<br>{about}"


def judges() -> dict[str, list[str]]:
    """The claims whose tests name a row of published.csv."""
    found: dict[str, list[str]] = {}
    for claim in claims.load():
        for row in sorted({row for test in claim.tests for row in claims.rows_of(test)}):
            found.setdefault(row, []).append(claim.id)
    return found


def table(everything: Sequence[Beside], document: str = "") -> Table:
    """The numbers of a document by its sections, what stands beside each, and how; without one, those of the logs."""
    named = judges()
    rows = []
    for one in everything:
        source = one.row["source_document"]
        if source != document if document else source in published.DOCUMENTS:
            continue
        place = one.row["locator"].partition(";")[0] if document else source
        rows.append((escape(place), _what(one.row), _stated(one.row), _here(one), _judged(one, named)))
    return Table(("section" if document else "source", "what is stated", "published", "here", "how they stand"), rows)


def by_hand(everything: Sequence[Beside]) -> Table:
    """What the authors counted by hand, counted again: each figure once."""
    rows = []
    for one in everything:
        if one.counted:
            link = f"<a href='published.html#{one.row['id']}'>{_stated(one.row)}</a>"
            rows.append((escape(one.counted), link, _here(one), _judged(one, {})))
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}
    for row in rows:
        seen.setdefault((row[0], re.sub("<[^>]+>", "", row[1]), *row[2:]), row)
    order = list(dict.fromkeys(row[0] for row in seen.values()))
    ordered = sorted(seen.values(), key=lambda row: order.index(row[0]))
    return Table(("what was counted", "published", "counted here", "how it stands"), ordered)


def counted(everything: Sequence[Beside]) -> dict[str, str]:
    """How many rows there are and how many stand beside what, for prose."""
    beside = [one for one in everything if one.values]
    judged = [one for one in beside if one.outcome]
    return {
        "total": str(len(everything)),
        "beside": str(len(beside)),
        "judged": str(len(judged)),
        "confirmed": str(sum(one.outcome == CONFIRMED for one in judged)),
        "differs": str(sum(one.outcome == DIFFERS for one in judged)),
        "shown": str(len(beside) - len(judged)),
        "without": str(len(everything) - len(beside)),
    }


def reasons(everything: Sequence[Beside]) -> Table:
    """Why nothing stands beside a number, and beside how many."""
    found: dict[str, list[str]] = {}
    for one in everything:
        if one.reason:
            found.setdefault(one.reason, []).append(one.row["id"])
    rows = [
        (escape(why), str(len(ids)), " ".join(f"<a href='published.html#{row}'>{row}</a>" for row in ids))
        for why, ids in sorted(found.items(), key=lambda item: -len(item[1]))
    ]
    return Table(("why not", "numbers", "which"), rows, numbers=("numbers",))
