"""Real behaviour that good guesses missed, with what reproduces it."""

import re
from html import escape

from ..evidence import computed
from ..record.files import DATA, read_rows
from .table import Table, lines, small

CODE = re.compile(r"`([^`]+)`")
TOOLS = ("transformers", "torch", "papermill", "Sphinx")  # that a version names first


def surprises(tools: bool = False) -> Table:
    """A row a surprise of GPUs, or of tools: the guess, what is so, and what it did to a result here."""
    rows = [
        (
            _text(row["guess"]),
            lines(_text(row["behaviour"]) + ".", small(escape(row["version"]))),
            lines(_text(row["effect"]) + ".", *(small(_path(each)) for each in row["source"].split())),
        )
        for row in read_rows(DATA / "surprises.csv", "surprises")
        if row["version"].startswith(TOOLS) == tools
    ]
    header = ("a good guess", "what is so", "what it did here, and what reproduces it")
    source = computed("data/surprises.csv")
    id, of = ("surprises-tools", "tools") if tools else ("surprises", "GPUs")
    return Table(header, rows, id=id, source=source, title=f"Good guesses that were wrong, of {of}")


def _path(path: str) -> str:
    """A path that may break after a slash or an underscore."""
    return f"<code>{escape(path).replace('/', '/<wbr>').replace('_', '_<wbr>')}</code>"


def _text(words: str) -> str:
    """Words as HTML, what stands between backquotes as code."""
    return CODE.sub(r"<code>\1</code>", escape(words))
