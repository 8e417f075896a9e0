"""Questions as the chapters show them: an overview, then each with its written answer and the proof."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from IPython.display import HTML, Markdown, display

from ..findings import DIFFERS, HOLDS, NOT_MEASURED
from ..records.interval import LIKELY, covers
from ..records.measured import Measured
from ..records.text import number
from ..tables.table import NOTHING, Table, lines, small, to, verdict_mark
from ..verdicts import claims
from ..verdicts.questions import Item, Result, Settled, ends, settle_chapter
from ..verdicts.rule import UNDECIDED
from .findings import badge
from .origin import DECIDED

NOT_YET = "not measured"
IN_CELLS = ("×", "%")  # units that a cell shows; others are named with what is measured


def overview(settled: Mapping[str, Settled]) -> Table:
    """A row a question, with a link to where it is argued, and the first sentence of the answer there."""

    def first(each: Settled) -> str:
        if not likely(each):
            return badge(outcome(each))
        return re.split(r"(?<=\.)\s", each.question.answer.format(**each.numbers), maxsplit=1)[0]

    rows = [(to(key, text=escape(each.question.question)), first(each)) for key, each in settled.items()]
    return Table(("question", "answer"), rows).of(DECIDED)


def likely(each: Settled) -> bool:
    """Whether what was measured says so, whatever its intervals."""
    return each.holds is True or each.holds is LIKELY


def outcome(each: Settled) -> str:
    return HOLDS if likely(each) else NOT_MEASURED if each.holds is None else DIFFERS


def answer(key: str, settled: Mapping[str, Settled]) -> None:
    """Show the written answer of a question; where it does not hold, the numbers."""
    each = settled[key]
    text = f"**{each.question.answer}** {each.question.because}".format(**each.numbers) if likely(each) else ""
    values = "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in each.numbers.items())
    display(Markdown(text or f"{badge(outcome(each))} {values}."))


def unsettled(gpu: str) -> list[str]:
    """A line for each answer that the record of a card does not bear out."""
    measured = Measured.load(gpu)
    settled = {name: settle_chapter(name, measured) for name in ("causes", "contradictions")}
    wrong = [f"{name}-{key}" for name, found in settled.items() for key, each in found.items() if not each.holds]
    return [f"the answer {each} does not hold" for each in wrong]


def proof(key: str, settled: Mapping[str, Settled], evidence: Measured) -> None:
    """Show what the documents say of a question, and what was measured for it."""
    for table in (statements(settled[key], evidence), evidence_table(settled[key])):
        if table.rows:
            display(HTML(table._repr_html_()))


def statements(settled: Settled, evidence: Measured) -> Table:
    """What the documents say, word for word and in ours, with the verdict on each claim."""
    recorded = claims.recorded(evidence.slug)
    rows = []
    for claim in claims.load():
        if claim.id in settled.question.claims:
            place = ", ".join(map(escape, claim.sources[0].values()))
            quote = escape(claim.quote.replace("**", ""))  # the documents are Markdown
            tests = recorded.get(claim.id)
            rows.append(
                (
                    to(claim.id, "claims.html"),
                    lines(escape(claim.claim), small(f"“{quote}” {place}")),
                    verdict_mark(tests[0]["verdict"] if tests else UNDECIDED),
                )
            )
    return Table(("claim", "the documents", "verdict"), rows).of(DECIDED)


def evidence_table(settled: Settled) -> Table:
    """What was measured, a row an item and a column a head dim, with what is printed below it."""
    items, results = settled.question.items, settled.results
    dims = sorted(
        {d for each in results.values() for part in (each.values, each.undecided, each.not_measured) for d in part}
    )

    def cell(result: Result, hdim: int) -> str:
        unit = result.unit if result.unit in IN_CELLS else ""
        if hdim in result.values:
            value = result.values[hdim]
            low, high = (number(end, unit).removesuffix(unit).rstrip() for end in ends(value))
            shown = lines(number(value.value, unit), small(f"{low} to {high}") if low != high else "")
        elif hdim in result.not_measured:
            shown = small(NOT_YET)
        else:
            shown = small(escape(result.undecided[hdim])) if hdim in result.undecided else NOTHING
        return lines(shown, small(f"printed {number(result.printed[hdim], unit)}") if hdim in result.printed else "")

    def label(item: Item) -> str:
        told = item.unit in ("", *IN_CELLS) or re.search(rf"(?<!\w){re.escape(item.unit)}(?!\w)", item.what)
        return escape(item.what) + ("" if told else f", {item.unit}")

    header = ("measured", *map(str, dims))
    rows = [(label(item), *(cell(results[key], hdim) for hdim in dims)) for key, item in items.items()]
    runs = max((value.runs for each in results.values() for value in each.values.values()), default=1)
    caption = f"By head dim. What was timed has a 95 % interval {covers(runs)}. {escape(settled.evidence)}"
    return Table(header, rows, numbers=header[1:], caption=caption).of(DECIDED)
