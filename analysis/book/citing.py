"""How a figure or table is found and cited: its anchor, its files, where its numbers are from, its BibTeX."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from .edition import LICENSE, LICENSE_URL, edition
from .origin import Part, Source

KEY = "fused-positional-embeddings"


def permalink(anchor: str) -> str:
    """The link beside a caption; it works offline too."""
    return f"<a class='permalink' href='#{anchor}' title='Link to this place'>link</a>"


def download(content: str, name: str) -> str:
    """A link that holds a small text file."""
    return f"<a download='{name}' href='data:text/csv;charset=utf-8,{quote(content)}'>CSV</a>"


def bibtex(anchor: str, title: str, source: Source, path: str = "") -> str:
    """The entry of a figure or table, `anchor` being "figure-rope-savings"; what is not published has no field.

    `path` is where it stands below the address of the book.
    """
    this = edition()
    fields = {
        "title": f"{{{title}}}",
        "author": this.authors,
        "year": this.year,
        "version": this.version,
        "howpublished": f"In: {{{this.title}}}",
        "note": "; ".join(filter(None, (anchor.replace("-", " ", 1).capitalize(), str(source), LICENSE))),
        "doi": this.doi,
        "url": this.address(path) or this.repository,
    }
    lines = (f"  {name} = {{{value}}},\n" for name, value in fields.items() if value)
    return f"@misc{{{KEY}-{anchor},\n{''.join(lines)}}}"


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
