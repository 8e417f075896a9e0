"""How a page shows findings: the sentences of the reference edition and, on another card, how that card compares."""

from typing import Any

from IPython.display import Markdown, display

from ..evidence import Evidence
from ..findings import DIFFERS, HOLDS, NOT_MEASURED, OPEN, Finding, load
from ..record.files import DataError
from ..tables.table import mark

STYLE = {HOLDS: "ok", DIFFERS: "wrong", OPEN: "stale", NOT_MEASURED: "unsupported"}


def badge(word: str) -> str:
    return mark(word, STYLE[word])


def sentence(finding: Finding, e: Evidence) -> str:
    """The sentence as it stands in the book of a card: in another's than the reference's, with a badge."""
    text = finding.home.text
    return text if e.is_reference or finding.is_of(e) else f"{text} {badge(finding.on(e).badge)}"


def paragraph(e: Evidence, *ids: str) -> str:
    """Some findings in one paragraph, as Markdown. Raises: DataError for one that there is not."""
    known = load()
    if unknown := [each for each in ids if each not in known]:
        raise DataError(f"there is no finding {unknown[0]!r}")
    text = " ".join(sentence(known[each], e) for each in ids).replace(" > - ", "\n> - ")  # a box has a line an item
    return marked(text, e)


def marked(text: str, e: Evidence) -> str:
    """Text of the reference edition as the book of a card has it: on another card marked as such."""
    return text if e.is_reference else f"<div class='reference-card'>\n\n{text}\n\n</div>"


def finding(evidence: Any, *ids: str) -> None:
    """Show findings in one paragraph, on the page of the card that some evidence is of."""
    display(Markdown(paragraph(Evidence.load(evidence.slug), *ids).replace(" %", "\u00a0%")))
