"""What a reader of another card's book sees: chapters executed in this process, and the words of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
from matplotlib.text import Text

from analysis.book import saving
from analysis.book.findings import Finding, recorded
from analysis.book.site import engine
from analysis.book.style import Plot
from analysis.records import files
from analysis.verdicts import claims

REFERENCE_CARD = "reference-card"  # the class of an element that is about the reference's card
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)  # code in Markdown
CODE = ("pre", "script", "style")


@dataclass(frozen=True)
class Chapter:
    """What an executed chapter holds: its own text, what its cells showed, the words in its figures, its findings."""

    name: str
    written: str
    shown: str
    drawn: str
    findings: tuple[Finding, ...]

    @property
    def text(self) -> str:
        return f"{self.written}\n{self.shown}\n{self.drawn}"


@contextmanager
def measured_in(folder: Path, built: Path) -> Iterator[None]:
    """`folder` in place of data/measured, and `built` in place of _build."""
    with (
        mock.patch.object(files, "MEASURED", folder),
        mock.patch.object(saving, "BUILD", built),
        mock.patch.object(claims, "BUILD", built),
    ):
        yield


def read_chapter(path: Path, gpu: str) -> Chapter:
    """Execute a notebook for a GPU. A figure is made and not drawn: what is written in it is kept."""
    drawn: list[str] = []

    def save(plot: Plot, where: Path) -> None:
        where.mkdir(parents=True, exist_ok=True)
        (where / f"{plot.id}.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
        drawn.extend(text.get_text() for text in plot.figure.findobj(Text))
        drawn.append(plot.data.to_csv(index=False))

    cells = nbformat.read(path, as_version=4).cells
    outputs: list[dict[str, Any]] = []
    with engine.shell() as shell, mock.patch.object(saving, "save", save):
        for cell in cells:
            if cell.cell_type != "code":
                continue
            for output in engine.run(shell, cell.source):
                assert output.output_type != "error", "\n".join(output.traceback)
                outputs += [output] * (output.output_type == "display_data")
            if "parameters" in cell.metadata.get("tags", ()):
                shell.user_ns |= {"gpu": gpu, "source": "recorded"}
    shown = "\n\n".join(_best(output["data"]) for output in outputs)
    written = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return Chapter(path.stem, written, shown, "\n".join(drawn), tuple(recorded([{"outputs": outputs}])))


def _best(data: dict[str, Any]) -> str:
    return str(next((data[kind] for kind in ("text/html", "text/markdown", "text/plain") if kind in data), ""))


class _Words(HTMLParser):
    """The words of a page and of its attributes that are read, without elements marked as the reference card's."""

    def __init__(self, code: bool) -> None:
        super().__init__()
        self.words: list[str] = []
        self.hidden: list[str] = []
        self.code = code

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        hides = REFERENCE_CARD in found.get("class", "").split() or (not self.code and tag in CODE)
        if not self.hidden and not hides:
            self.words += [found[name] for name in ("alt", "title", "aria-label") if name in found]
        if (self.hidden or hides) and tag not in VOID:
            self.hidden.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.hidden:
            while self.hidden.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.words.append(data)


def words(html: str, code: bool = True) -> str:
    """What a page says of the card that it is about; with or without code."""
    parser = _Words(code)
    parser.feed(html if code else FENCED.sub("", html))
    return " ".join(" ".join(parser.words).split())
