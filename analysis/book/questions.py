"""Questions as the chapters show them: an overview, then each with its written answer and the proof."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from html import escape

from IPython.display import HTML, Markdown, display

from ..claims import causes, contradictions, judge
from ..claims.claim import CLAIMS
from ..claims.question import QUESTIONS, Item, Settled, settle
from ..claims.rule import UNDECIDED
from ..evidence import Evidence
from ..evidence.known import NOT_MEASURED
from ..evidence.origin import DECIDED
from ..findings import Finding
from ..record.text import number
from ..tables.table import NOTHING, Table, lines, small, to, verdict_mark
from .findings import badge, marked, sentence

CHAPTERS = causes, contradictions  # importing them registers their questions
IN_CELLS = ("×", "%")  # units that a cell shows; others are named with what is measured


@functools.cache
def finding_of(chapter: str, id: str) -> Finding:
    """The answer of a question: a finding, whose numbers are its items."""
    asked = QUESTIONS[chapter, id]
    return Finding(f"{chapter}-{id}", f"**{asked.answer}** {asked.because}", asked.ask)


def overview(settled: Mapping[str, Settled]) -> Table:
    """A row a question, with a link to where it is argued, and the first sentence of the answer there."""

    def first(each: Settled) -> str:
        found = finding_of(each.question.chapter, each.question.id)
        answer = re.split(r"(?<=\.)(?:\*\*)?\s", found.home.text, maxsplit=1)[0].replace("**", "")
        if found.is_of(each.e):
            return answer
        return f"<span class='reference-card'>{answer}</span> {badge(found.on(each.e).badge)}"

    rows = [(to(key, text=escape(each.question.asks)), first(each)) for key, each in settled.items()]
    return Table(("question", "answer"), rows).of(DECIDED)


def answer(key: str, settled: Mapping[str, Settled]) -> None:
    """Show the written answer of a question, with a badge where it is of another card."""
    each = settled[key]
    display(Markdown(marked(sentence(finding_of(each.question.chapter, key), each.e), each.e)))


def unsettled(gpu: str) -> list[str]:
    """A line for each answer that the record of a card does not bear out."""
    e = Evidence.load(gpu)
    wrong = [finding_of(*key).id for key in QUESTIONS if not finding_of(*key).on(e).check.intervals]
    return [f"the answer {each} does not hold" for each in wrong]


def proof(key: str, settled: Mapping[str, Settled]) -> None:
    """Show what the documents say of a question, and what was measured for it."""
    for table in (statements(settled[key]), evidence_table(settled[key])):
        if table.rows:
            display(HTML(table._repr_html_()))


def statements(settled: Settled) -> Table:
    """What the documents say, word for word and in ours, with the verdict on each claim."""
    recorded = judge.recorded(settled.e.slug)
    rows = []
    for claim in (CLAIMS[id] for id in settled.question.about):
        quote = escape(claim.quote.replace("**", ""))  # the documents are Markdown
        tests = recorded.get(claim.id)
        about = small(f"“{quote}” {', '.join(map(escape, claim.where[0]))}")
        verdict = verdict_mark(tests[0]["verdict"] if tests else UNDECIDED)
        rows.append((to(claim.id, "claims.html"), lines(escape(claim.claim), about), verdict))
    return Table(("claim", "the documents", "verdict"), rows).of(DECIDED)


def evidence_table(settled: Settled) -> Table:
    """What was measured, a row an item and a column a head dim, with what is printed below it."""
    dims = sorted({hdim for each in settled.items.values() for hdim in each.measured})

    def cell(item: Item, hdim: int) -> str:
        if hdim not in item.measured:
            return NOTHING
        unit, value = item.unit if item.unit in IN_CELLS else "", item.measured[hdim]
        shown = small(escape(NOT_MEASURED if value.why and value.why.word == NOT_MEASURED else str(value.why)))
        if value:
            low, high = (number(end, unit).removesuffix(unit).rstrip() for end in (value.low, value.high))
            shown = lines(number(value.value, unit), small(f"{low} to {high}") if low != high else "")
        printed = item.printed[hdim] if item.printed and hdim in item.printed else None
        return lines(shown, small(f"printed {number(printed.value, unit)}") if printed else "")

    def label(item: Item) -> str:
        told = item.unit in ("", *IN_CELLS) or re.search(rf"(?<!\w){re.escape(item.unit)}(?!\w)", item.what)
        return escape(item.what) + ("" if told else f", {item.unit}")

    header = ("measured", *map(str, dims))
    rows = [(label(item), *(cell(item, hdim) for hdim in dims)) for item in settled.items.values()]
    caption = f"By head dim. What was timed has a 95 % interval {settled.e.covers()}. {escape(settled.evidence)}"
    return Table(header, rows, numbers=header[1:], caption=caption).of(DECIDED)


__all__ = ["answer", "evidence_table", "overview", "proof", "settle", "statements", "unsettled"]
