"""Real behaviour that good guesses missed, with what reproduces it."""

import re
from html import escape

from ..evidence import computed
from ..record.files import DATA, Row, read_rows
from .table import Table, lines, small

CODE = re.compile(r"`([^`]+)`")
TOOLS = ("transformers", "torch", "ctranslate2", "openvino")  # that a version names first


def surprises(tools: bool = False) -> Table:
    """A row a surprise of GPUs, or of tools, that no section tells: the guess, what is so, and what follows here."""
    rows = [
        (
            _text(row["guess"]),
            lines(_text(row["behaviour"]) + ".", small(escape(row["version"]))),
            lines(_text(row["effect"]) + ".", *(small(f"<code>{path}</code>") for path in row["source"].split())),
        )
        for row in recorded()
        if not row["section"] and row["version"].startswith(TOOLS) == tools
    ]
    header = ("a good guess", "what is so", "what follows here, and what reproduces it")
    source = computed("data/surprises.csv")
    id, of = ("surprises-tools", "tools") if tools else ("surprises", "GPUs")
    return Table(header, rows, id=id, source=source, title=f"Good guesses that were wrong, of {of}")


def seen(section: str) -> str:
    """The effect, the version and the source of the surprise of a section, as Markdown."""
    (row,) = (row for row in recorded() if row["section"] == section)
    sources = ", ".join(f"`{path}`" for path in row["source"].split())
    return f"{row['effect']}. Seen with {row['version']}; reproduced by {sources}."


def recorded() -> list[Row]:
    return read_rows(DATA / "surprises.csv", "surprises")


def _text(words: str) -> str:
    """Words as HTML, what stands between backquotes as code."""
    return CODE.sub(r"<code>\1</code>", escape(words))
