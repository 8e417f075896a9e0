"""Tables of the published numbers: what was measured, counted or computed for each, and how the two compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from ..claims.printed import BYTES, CONFIRMED, DIFFERS, OF_A_CARD, SOURCES, Beside
from ..claims.rule import A_DIFFERENCE, NO_DIFFERENCE, OPPOSITE, REPRODUCED, SAME_DIRECTION, UNDECIDED
from ..evidence import Estimate
from ..evidence.origin import DECIDED
from ..record import published
from .table import NOTHING, Table, lines, link, mark, small, to

UNITS = {"x_faster": "× as fast", "x_slower": "× as long", "x_factor": "×", "x": "×", "count": "", "ops": "", "abs": ""}
BY_HDIM = "differs by head dim"
STYLE = {
    **dict.fromkeys((CONFIRMED, REPRODUCED), "ok"),
    **dict.fromkeys((DIFFERS, OPPOSITE, A_DIFFERENCE, NO_DIFFERENCE), "wrong"),
    **dict.fromkeys((SAME_DIRECTION, BY_HDIM), "stale"),
}


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


def _value(each: Estimate) -> float:
    return each.value


def _here(one: Beside) -> str:
    """The value with its spread, or the least and largest of several."""
    if not one.values:
        return NOTHING
    found = [number(value.value, one.unit) for value in (min(one.values, key=_value), max(one.values, key=_value))]
    spread = ""
    if len(one.values) == 1:
        low, high = (number(bound, one.unit) for bound in (one.values[0].low, one.values[0].high))
        spread = f" {small(f'({low}–{high})')}" if low != high else ""
    unit = _unit(one.unit)
    also = (small(f"{escape(words)}: {number(value, one.unit)}{unit}") for words, value in one.also.items())
    origin = "" if one.sources == (SOURCES["timings"],) else ", ".join(one.sources)
    about = escape("; ".join(part for part in (origin, one.note) if part))
    return lines("–".join(dict.fromkeys(found)) + unit + spread, *also, small(about) if about else "")


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


NOT_COMPARED = "not compared"
MEANS = {  # what the outcome of a comparison says
    CONFIRMED: "counted or computed, and the same to the last digit that is printed",
    DIFFERS: "counted or computed, and another number",
    REPRODUCED: "a ratio of times: the whole interval is within 10 % of the published one, on its side of 1",
    SAME_DIRECTION: "a ratio: the interval is on the side of 1 of the published one, but not all within 10 % of it",
    NO_DIFFERENCE: "a difference is published, and none is measured",
    A_DIFFERENCE: "a tie is published, and a difference is measured",
    OPPOSITE: "faster is published and slower is measured, or the reverse",
    BY_HDIM: "of several head dims, some agree",
    UNDECIDED: "the interval is too wide",
    NOT_COMPARED: "it depends on the card, or nothing can be measured for it; the row says why",
}


def outcome(one: Beside) -> str:
    """How a value compares with what is published, in a word."""
    return one.outcome or NOT_COMPARED


def counts(everything: Iterable[Beside]) -> dict[str, int]:
    """How many numbers there are, agree, have the right direction alone, do not agree, and were not compared."""
    given = Counter(map(outcome, everything))
    words = {
        "agree": (CONFIRMED, REPRODUCED),
        "direction": (SAME_DIRECTION,),
        "differ": (DIFFERS, OPPOSITE, A_DIFFERENCE, NO_DIFFERENCE),
        "uncompared": (NOT_COMPARED,),
    }
    return {"total": given.total()} | {name: sum(given[word] for word in chosen) for name, chosen in words.items()}


def summary(everything: Sequence[Beside]) -> Table:
    """How many numbers have each outcome, and what it means."""
    given = Counter(map(outcome, everything))
    rows = [
        (_mark(word), f"<a href='?comparison={word.replace(' ', '+')}'>{given[word]}</a>", means)
        for word, means in MEANS.items()
        if given[word]
    ]
    return Table(("comparison", "numbers", "means"), rows, numbers=("numbers",)).of(DECIDED)


def _mark(word: str) -> str:
    return mark(word, STYLE.get(word, "neutral"))


def comparison(one: Beside, links: bool = True) -> str:
    """How a value compares with what is published, or why it is not compared; and the claims that name the number."""
    why = one.reason
    if not (why or one.outcome or one.same_card):
        why = "another card" if one.row["quantity"] in OF_A_CARD else "another quantity"
    named = ", ".join(to(claim, "claims.html") for claim in one.claims) if links else ""
    stale = mark("stale") if one.stale else ""
    about = (small(escape(why)) if why else "", stale, _ratio(one), small(f"claim {named}") if named else "")
    return lines(_mark(outcome(one)), *about)


def _what(row: Mapping[str, Any], place: str) -> str:
    """Whose number it is, at which shape, and what the document says of it."""
    over = f" over {link(row['baseline'])}" if row["baseline"] else ""
    shape = [f"{label} {int(row[name])}" for name, label in (("hdim", "hdim"), ("rotary_dim", "R")) if row[name]]
    if row["heads"] and row["seq_q"]:
        shape.append(f"{int(row['heads'])} × {int(row['seq_q'])}")
    line = row["locator"].partition("; ")[2] if row["source_document"] in published.DOCUMENTS else row["locator"]
    parts = [", ".join(shape), row["what"], row["note"], place, line]
    about = small(escape("; ".join(part for part in parts if part)))
    return f"<span id='{row['id']}'>{row['id']}</span> {link(row['version'] or '')}{over}<br>{about}"


def table(everything: Sequence[Beside], document: str = "") -> Table:
    """The numbers of a document in its order, what was measured for each, and how they compare; else those of logs."""
    rows = []
    for one in everything:
        source = one.row["source_document"]
        if source != document if document else source in published.DOCUMENTS:
            continue
        place = one.row["locator"].partition(";")[0] if document else source
        rows.append((_what(one.row, place), _stated(one.row), _here(one), comparison(one)))
    return Table(("what is stated", "published", "here", "comparison"), rows).of(DECIDED)


def by_hand(everything: Sequence[Beside]) -> Table:
    """What the authors counted by hand, counted again: each figure once."""
    figures: dict[tuple[str, ...], str] = {}
    for one in everything:
        if one.counted:
            figures.setdefault((one.counted, _stated(one.row), _here(one), comparison(one, links=False)), one.row["id"])
    order = list(dict.fromkeys(counted for counted, *_ in figures))
    rows = [
        (escape(counted), to(row, "published.html", stated), *cells)
        for (counted, stated, *cells), row in sorted(figures.items(), key=lambda item: order.index(item[0][0]))
    ]
    return Table(("what was counted", "published", "counted here", "comparison"), rows).of(DECIDED)
