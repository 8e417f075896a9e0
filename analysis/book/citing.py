"""How a figure or table is found and cited: its anchor, its files, where its numbers are from, its BibTeX."""

from __future__ import annotations

import hashlib
from html import escape
from urllib.parse import quote

from ..evidence.origin import Part, Source
from ..tables.table import Table
from .edition import LICENSE, LICENSE_URL, edition

KEY = "fused-positional-embeddings"
LONGEST = 60  # characters of an anchor in the key of an entry
LATEX = str.maketrans({char: f"\\{char}" for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "\u00a0": " ",
})  # fmt: skip


def permalink(anchor: str) -> str:
    """The link beside a caption; it works offline too."""
    return f"<a class='permalink' href='#{anchor}' title='Link to this place'>link</a>"


def download(content: str, name: str) -> str:
    """A link that holds a small text file."""
    return f"<a download='{name}' href='data:text/csv;charset=utf-8,{quote(content)}'>CSV</a>"


def bibtex(anchor: str, title: str, source: Source, path: str = "") -> str:
    """The entry of a figure or table, `anchor` being "figure-rope-savings".

    `path` is where it stands below the address of the book.
    """
    note = "; ".join(filter(None, (anchor.replace("-", " ", 1).capitalize(), str(source), LICENSE)))
    book = f"In: {{{latex(edition().title)}}}"
    return _entry(f"{KEY}-{_short(anchor)}", title, path, howpublished=book, note=latex(note))


def bibtex_of_edition() -> str:
    """The entry of the whole book."""
    return _entry(KEY, edition().title, "index.html", note=latex(LICENSE))


def latex(text: str) -> str:
    """Text as LaTeX prints it; addresses are left as they are, which it sets as such."""
    return text.translate(LATEX)


def _entry(key: str, title: str, path: str, **more: str) -> str:
    """What is not published has no field."""
    this = edition()
    fields = {
        "title": f"{{{latex(title)}}}",
        "author": this.authors,
        "year": this.year,
        "version": this.version,
        **more,
        "doi": this.doi,
        "url": this.address(path) or this.repository,
    }
    lines = (f"  {name} = {{{value}}},\n" for name, value in fields.items() if value)
    return f"@misc{{{key},\n{''.join(lines)}}}"


def _short(anchor: str) -> str:
    """An anchor of at most LONGEST characters: of a longer one the first words, and a digest that tells it apart."""
    if len(anchor) <= LONGEST:
        return anchor
    return f"{anchor[: LONGEST - 7].rsplit('-', 1)[0]}-{hashlib.sha256(anchor.encode()).hexdigest()[:6]}"


def _row(part: Part) -> str:
    """One part of a source as a line of its facts: what, and each run with its commit and its day."""
    words = part.words if part.words.startswith(part.kind) else f"{part.kind}: {part.words}"
    words = words[:1].upper() + words[1:]
    runs = "; ".join(f"{run}, {run.date}".strip(", ") for run in part.runs)
    return f"<li>{escape(': '.join(filter(None, (words, runs))))}</li>"


def block(anchor: str, title: str, source: Source, files: str, path: str = "") -> str:
    """What unfolds below a figure or table: files, facts, licence, BibTeX."""
    facts = "".join(map(_row, source.parts))
    return (
        f"<details class='cite'><summary>Cite or download</summary><p>{files}. "
        f"<a href='{LICENSE_URL}'>{LICENSE}</a>.</p><ul>{facts}</ul>"
        f"<pre>{escape(bibtex(anchor, title, source, path))}</pre></details>"
    )


def table(what: Table, source: Source, anchor: str) -> str:
    """A table as HTML with a permalink, a download and how to cite it; `source` where it names none of its own."""
    title = f"Table of {', '.join(what.plain().header)}"
    return (
        f"<div class='evidence-table' id='{anchor}'>{what._repr_html_()}<div class='below'>{permalink(anchor)}"
        f"{block(anchor, title, what.source or source, download(what.csv(), f'{anchor}.csv'))}</div></div>"
    )
