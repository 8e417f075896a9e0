"""What the front page and the README share: which findings they show; and the README's part that is made from data."""

import re

from ..evidence import Evidence
from ..figures.style import Plot
from ..findings import committed
from ..record.files import REFERENCE, DataError
from .notebook import paragraph, say

NOTEBOOKS = "analysis/notebooks"
CHAPTER = re.compile(r"\]\((\w+)\.(?:ipynb|html)(?:#[\w-]+)?\)")  # a link between chapters; a finding links to pages
FINDINGS = ("front-loads", "front-wave", "front-checks", "front-v8")
MARKS = ("<!-- found -->", "<!-- /found -->")  # in the README: between them stands what is made from data


def edition(e: Evidence) -> None:
    """Show which card the text is written for, and which the tables and figures are of."""
    written = committed(REFERENCE).card
    text = f"Text, tables and figures are of an {written}, where no other card is named."
    if not e.record.is_reference:
        text = (
            f"<div class='reference-card'>\n\nThe text is written for an {written}, whose numbers it has. A badge at "
            "each finding says how this card compares; [card by card](compare.html) has the numbers of both.\n\n</div>"
            f"\n\nTables and figures are of the {e.card}."
        )
    say(text)


def readme(text: str, e: Evidence, plot: Plot) -> str:
    """`text` of the README with findings and figure between their marks. Raises: DataError without them."""
    found = "\n".join(f"{number}. {paragraph(e, each)}" for number, each in enumerate(FINDINGS, start=1))
    made = CHAPTER.sub(rf"]({NOTEBOOKS}/\1.ipynb)", f"{found}\n\n![{plot.alt}](book/figures/{plot.id}.png)")
    start, end = MARKS
    if start not in text or end not in text:
        raise DataError(f"README.md lacks {start} or {end}, between which what is made from data belongs")
    return f"{text[: text.index(start)]}{start}\n\n{made}\n\n{text[text.index(end) :]}"
