"""Settled questions as the chapters show them: an overview, what the documents say, what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from IPython.display import HTML, Markdown, display

from ...records.measured import Measured
from ...records.text import number
from ...verdicts import claims
from ...verdicts.questions import NOT_YET, Item, Question, Result, Settled, ends
from ...verdicts.rule import UNDECIDED
from ..origin import DECIDED
from ..tables import NOTHING, VERDICT_STYLE, Table, small

SHORTLY = "not yet"  # in the cells of a table
IN_CELLS = ("×", "%")  # units that a cell shows; others stand beside what is measured


def overview(settled: Mapping[str, Settled], answer: str) -> Table:
    """A row a question, with a link to where it is argued, and the answer."""
    rows = [
        (f"<a href='#{key}'>{escape(each.question.question)}</a>", escape(each.answer)) for key, each in settled.items()
    ]
    return Table(("question", answer), rows).of(DECIDED)


def statements(question: Question, evidence: Measured) -> Table:
    """What the documents say, word for word and in ours, with the verdict on each claim."""
    verdicts = {name: tests[0]["verdict"] for name, tests in claims.recorded(evidence.slug).items()}
    cells = []
    for claim in claims.load():
        if claim.id in question.claims:
            place = ", ".join(map(escape, claim.sources[0].values()))
            word = verdicts.get(claim.id, UNDECIDED)
            cells.append(
                (
                    f"<a href='claims.html#{claim.id}'>{claim.id}</a>",
                    f"“{escape(claim.quote)}” {small(place)}<br>{escape(claim.claim)}",
                    f"<span class='status {VERDICT_STYLE[word]}'>{word}</span>",
                )
            )
    return Table(("claim", "the documents", "verdict"), cells).of(DECIDED)


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
            lines = [number(value.value, unit), *([small(f"{low} to {high}")] if low != high else [])]
        elif hdim in result.not_measured:
            lines = [small(SHORTLY)]
        else:
            lines = [small(escape(result.undecided[hdim])) if hdim in result.undecided else NOTHING]
        if hdim in result.printed:
            lines.append(small(f"printed {number(result.printed[hdim], unit)}"))
        return "<br>".join(lines)

    def label(item: Item) -> str:
        return escape(item.what) + (f", {item.unit}" if item.unit and item.unit not in IN_CELLS else "")

    header = ("measured", *(str(hdim) for hdim in dims))
    rows = [(label(item), *(cell(results[key], hdim) for hdim in dims)) for key, item in items.items()]
    caption = "By head dim, with 95 % intervals where processes were timed."
    if any(each.not_measured for each in results.values()):
        caption += f" {SHORTLY.capitalize()}: {NOT_YET}."
    return Table(header, rows, numbers=header[1:], caption=f"{caption} {escape(settled.evidence)}").of(DECIDED)


def argue(key: str, settled: Mapping[str, Settled], evidence: Measured) -> None:
    """Show one of the settled questions: the answer, what the documents say, what was measured."""
    each = settled[key]
    display(Markdown(f"<a id='{key}'></a>\n\n**{each.answer}.** {each.because}"))
    if each.question.claims:
        display(HTML(statements(each.question, evidence)._repr_html_()))
    display(HTML(evidence_table(each)._repr_html_()))
