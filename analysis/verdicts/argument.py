"""An argument: what was measured on a GPU for a question, and the answer that follows from it.

The chapters on fusion, contradictions and causes are made of `Argument`s. An `Item` is one thing measured, at one head
dim or several. What stands is a function of what was found; the reason is sentences with places for values:

    {loads}          the range of the values with its unit: "17.3–19.1 %"
    {loads:printed}  the range of what the documents print
    {loads:as}       the values read as speeds: "is 1.20–1.94× as fast as", "takes 1.03× as long as", "ties with"

A sentence whose values are missing is left out, and what is missing is listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from string import Formatter
from typing import Any, TypeVar

from IPython.display import HTML, Markdown, display

from ..book.tables import NOTHING, VERDICT_STYLE, Table, small
from ..records.files import gpu_folder, read_table
from ..records.interval import Ratio
from ..records.measured import Measured
from ..records.text import beside, number, span
from . import claims
from .facts import Facts
from .rule import UNDECIDED, NotMeasured, Undecided, interval

NOT_YET = "not measured on this GPU yet"
SHORTLY = "not yet"  # in the cells of a table
IN_CELLS = ("×", "%")  # units that a cell shows; others stand beside what is measured
OPEN = f"Open: {NOT_YET}"

DRAM, L2 = (f"{unit}__throughput.avg.pct_of_peak_sustained_elapsed" for unit in ("dram", "lts"))
BOUND = 60.0  # per cent of a ceiling from which on a kernel is said to be bound by it
SEEN = 1.1  # a difference that can be seen
HALF = 50.0  # per cent of a gap or of a time from which on a cause is said to explain it
HALF_PRECISION: dict[str, Any] = {"seq_q": 512}  # picks, at head dim 64, the problem of the status report

T = TypeVar("T")
Measure = Callable[[Facts, int], Any]  # of a head dim: a number, or a Series with a value a process


@dataclass(frozen=True)
class Item:
    """One thing measured. `said` is what the documents print for it; `dims` its head dims, if not the argument's."""

    what: str
    measure: Measure
    unit: str = "×"
    said: Measure | None = None
    dims: Sequence[int] = ()


@dataclass(frozen=True)
class Found:
    """What was found for an item, by head dim: values with their intervals, what is printed, why a value is missing."""

    unit: str = "×"
    values: Mapping[int, Ratio] = field(default_factory=dict)
    said: Mapping[int, float] = field(default_factory=dict)
    missing: Mapping[int, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values)

    def above(self, bound: float) -> bool:
        """Whether something was found and all of it, intervals included, lies above a bound."""
        return bool(self) and min(_ends(value)[0] for value in self.values.values()) > bound

    def below(self, bound: float) -> bool:
        """Whether something was found and all of it, intervals included, lies below a bound."""
        return bool(self) and max(_ends(value)[1] for value in self.values.values()) < bound

    def at(self, *dims: int) -> Found:
        """What was found at some of the head dims."""
        return Found(self.unit, _only(self.values, dims), _only(self.said, dims), _only(self.missing, dims))

    def __format__(self, spec: str) -> str:
        found = [value.value for value in self.values.values()]
        if spec == "printed":
            return span(self.said.values(), self.unit)
        if spec == "as":
            return beside(found)
        return span(found, self.unit)


Findings = Mapping[str, Found]
Stands = Callable[[Findings], str]  # a few words, by what was found


def speed(version: str, other: str, **chosen: Any) -> Measure:
    """How many times as fast as `other` a version is, at every head dim."""
    return lambda facts, hdim: facts.speed(version, other, hdim, **chosen)


def closed(version: str, without: str, reference: str, **chosen: Any) -> Measure:
    """The share of the gap from a version to a faster one, in per cent, that goes in an ablation of it."""
    return lambda facts, hdim: 100 * facts.closed(version, without, reference, hdim, study="ablation", **chosen)


def printed(rows: Mapping[int, str | tuple[str, str]]) -> Measure:
    """A row of data/published.csv for every head dim, or the quotient of two."""

    def value(facts: Facts, hdim: int) -> float:
        row = rows[hdim]
        return facts.said(row) if isinstance(row, str) else facts.said(row[0]) / facts.said(row[1])

    return value


@dataclass(frozen=True)
class Argument:
    """A question, what is measured for it, what stands by what was found, why, and the claims that it is about.

    Without a value of each item that it `needs` it is open.
    """

    question: str
    dims: Sequence[int]
    items: Mapping[str, Item]
    stands: Stands
    because: Sequence[str]
    claims: Sequence[str] = ()
    needs: Sequence[str] = ()


def collect(arguments: dict[str, Argument]) -> Callable[..., Callable[[Stands], Stands]]:
    """A decorator that adds an argument, under the name of the function that says what stands."""

    def describe(
        question: str,
        *,
        dims: Sequence[int],
        items: Mapping[str, Item],
        because: Sequence[str],
        claims: Sequence[str] = (),
        needs: Sequence[str] = (),
    ) -> Callable[[Stands], Stands]:
        def add(stands: Stands) -> Stands:
            arguments[stands.__name__] = Argument(question, dims, items, stands, because, claims, needs)
            return stands

        return add

    return describe


@dataclass(frozen=True)
class Settled:
    """An argument with what the data of one GPU say to it, and the tables that this is from."""

    argument: Argument
    found: Findings
    evidence: str

    @property
    def stands(self) -> str:
        """What follows in a few words, or that it is open."""
        if not all(self.found[name] for name in self.argument.needs):
            return OPEN
        return self.argument.stands(self.found)

    @property
    def because(self) -> str:
        """The sentences whose values were found, then what was not."""
        items = self.argument.items.items()
        said = [text.format_map(self.found) for text in self.argument.because if all(map(self.found.get, _names(text)))]
        absent = [
            item.what for key, item in items if NOT_YET in self.found[key].missing.values() and not self.found[key]
        ]
        return " ".join([*said, *([f"N{NOT_YET[1:]}: {'; '.join(absent)}."] if absent else [])])


def _only(by_hdim: Mapping[int, T], dims: Sequence[int]) -> dict[int, T]:
    return {hdim: by_hdim[hdim] for hdim in dims if hdim in by_hdim}


def _names(text: str) -> list[str]:
    """The places of a sentence."""
    return [name for _, name, _, _ in Formatter().parse(text) if name]


def _ends(value: Ratio) -> tuple[float, float]:
    """The interval of a value, which a single process does not give: then the value itself."""
    return (value.low, value.high) if value.low == value.low else (value.value, value.value)


# ---------------------------------------------------------------- measured for several arguments


def memory_percent(facts: Facts, version: str, hdim: int, **chosen: Any) -> float:
    """What a version moves, of what DRAM or L2 can: the larger share, in per cent."""
    return max(facts.counter(version, counter, hdim, **chosen) for counter in (DRAM, L2))


def fp32_percent(facts: Facts, version: str, hdim: int, **chosen: Any) -> Any:
    """The FLOP of a version's instructions a second, of what the FP32 units reach at most, in per cent."""
    done = 2 * facts.count(version, "inst.fma", hdim, **chosen) + facts.count(version, "inst.fp32", hdim, **chosen)
    return 100 * done / facts.us(version, hdim, **chosen) / 1e6 / facts.ceiling("fp32_tflops")


def rotations(facts: Facts, version: str, hdim: int, rotary: str = "full") -> float:
    """How often a version rotates, over separate kernels that rotate as many dims."""
    done = facts.count(version, "event.rotation", hdim, rotary=rotary)
    return done / facts.count("rope_separate", "event.rotation", hdim, rotary=rotary)


def waits(facts: Facts, version: str, reasons: str, hdim: int, **chosen: Any) -> float:
    """The share of its time, in per cent, that a warp of the last launch waits for some reasons."""
    return 100 * facts.stalled(version, reasons, hdim, **chosen)


# ---------------------------------------------------------------- numbers in words


# ---------------------------------------------------------------- settling


def _find(item: Item, dims: Sequence[int], facts: Facts) -> Found:
    values: dict[int, Ratio] = {}
    said: dict[int, float] = {}
    missing: dict[int, str] = {}
    for hdim in item.dims or dims:
        if item.said:
            said[hdim] = float(item.said(facts, hdim))
        try:
            value = interval(item.measure(facts, hdim))
        except NotMeasured:
            missing[hdim] = NOT_YET
        except Undecided as why:
            missing[hdim] = str(why)
        except ZeroDivisionError:
            missing[hdim] = "it divides by a count of zero"
        else:
            if math.isnan(value.value):
                missing[hdim] = "it has no value"
            else:
                values[hdim] = value
    return Found(item.unit, values, said, missing)


def settle(argument: Argument, facts: Facts) -> Settled:
    """What the data of a GPU say to an argument. Raises: DataError when a question is wrong or a file is damaged."""
    facts.used, facts.stale = {}, {}
    found = {key: _find(item, argument.dims, facts) for key, item in argument.items.items()}
    stale = f" Stale, since the code has changed: {', '.join(facts.stale)}." if facts.stale else ""
    return Settled(argument, found, f"From {', '.join(facts.used) or 'the shapes alone'}.{stale}")


def settle_all(arguments: Mapping[str, Argument], evidence: Measured) -> dict[str, Settled]:
    """Some arguments, by their names, with what the data of a GPU say to them."""
    facts = Facts(gpu_folder(evidence.slug))
    return {key: settle(argument, facts) for key, argument in arguments.items()}


# ---------------------------------------------------------------- showing


def overview(settled: Mapping[str, Settled], answer: str) -> Table:
    """A row a question, with a link to where it is argued, and the answer."""
    rows = [
        (f"<a href='#{key}'>{escape(each.argument.question)}</a>", escape(each.stands)) for key, each in settled.items()
    ]
    return Table(("question", answer), rows)


def statements(argument: Argument, evidence: Measured) -> Table:
    """What the documents say, word for word and in ours, with the verdict on each claim."""
    verdicts = read_table(gpu_folder(evidence.slug) / "verdicts.csv", "verdicts").drop_duplicates("claim_id")
    found = dict(zip(verdicts["claim_id"], verdicts["verdict"], strict=True))
    rows = []
    for claim in claims.load():
        if claim.id in argument.claims:
            place = ", ".join(map(escape, claim.sources[0].values()))
            word = found.get(claim.id, UNDECIDED)
            rows.append(
                (
                    f"<a href='claims.html#{claim.id}'>{claim.id}</a>",
                    f"“{escape(claim.quote)}” {small(place)}<br>{escape(claim.claim)}",
                    f"<span class='status {VERDICT_STYLE[word]}'>{word}</span>",
                )
            )
    return Table(("claim", "the documents", "verdict"), rows)


def evidence_table(settled: Settled) -> Table:
    """What was measured, a row an item and a column a head dim, with what is printed below it."""
    items, found = settled.argument.items, settled.found
    dims = sorted({hdim for each in found.values() for part in (each.values, each.missing) for hdim in part})

    def cell(of: Found, hdim: int) -> str:
        unit = of.unit if of.unit in IN_CELLS else ""
        if hdim in of.values:
            value = of.values[hdim]
            low, high = (number(end, unit).removesuffix(unit).rstrip() for end in _ends(value))
            lines = [number(value.value, unit), *([small(f"{low} to {high}")] if low != high else [])]
        elif of.missing.get(hdim) == NOT_YET:
            lines = [small(SHORTLY)]
        else:
            lines = [small(escape(of.missing[hdim])) if hdim in of.missing else NOTHING]
        if hdim in of.said:
            lines.append(small(f"printed {number(of.said[hdim], unit)}"))
        return "<br>".join(lines)

    def label(item: Item) -> str:
        return escape(item.what) + (f", {item.unit}" if item.unit and item.unit not in IN_CELLS else "")

    header = ("measured", *(str(hdim) for hdim in dims))
    rows = [(label(item), *(cell(found[key], hdim) for hdim in dims)) for key, item in items.items()]
    caption = "By head dim, with 95 % intervals where processes were timed."
    if any(NOT_YET in each.missing.values() for each in found.values()):
        caption += f" {SHORTLY.capitalize()}: {NOT_YET}."
    return Table(header, rows, numbers=header[1:], caption=f"{caption} {escape(settled.evidence)}")


def argue(key: str, settled: Mapping[str, Settled], evidence: Measured) -> None:
    """Show one of the settled arguments: the answer, what the documents say, what was measured."""
    mine = settled[key]
    display(Markdown(f"<a id='{key}'></a>\n\n**{mine.stands}.** {mine.because}"))
    if mine.argument.claims:
        display(HTML(statements(mine.argument, evidence)._repr_html_()))
    display(HTML(evidence_table(mine)._repr_html_()))
