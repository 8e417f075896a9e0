"""Reference of a figure or table: its anchor, its files, its script and rows, its BibTeX."""

import contextlib
import functools
from collections.abc import Iterator
from html import escape
from urllib.parse import quote

from ..evidence import Evidence, Part, Source
from ..measure.provenance import commit
from ..record.files import known_gpus
from ..tables.table import Table
from .edition import LICENSE, LICENSE_URL, edition

KEY = "fused-positional-embeddings"
FEW_RUNS = 4  # so many are named in a citation; of more it has their days
LATEX = str.maketrans({char: f"\\{char}" for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "\u00a0": " ",
})  # fmt: skip
this_commit = functools.cache(commit)  # of the code that draws
_told: list[str] = []  # the findings of the page that is being executed
_page: list[str] = []  # its notebook, a path in the repository


@contextlib.contextmanager
def page_with(findings: list[str], notebook: str) -> Iterator[None]:
    """Have the blocks of a page say where the numbers of its findings are from, and how to run it again."""
    _told[:], _page[:] = findings, [notebook]
    try:
        yield
    finally:
        _told.clear()
        _page.clear()


def again(source: Source) -> str:
    """The command that draws a figure or table again, and that which measures its rows anew, with the time it took."""
    command = f".venv/bin/papermill {_page[0]} out.ipynb" if _page else "make book"
    told = f"<p>Again from the recorded rows, without a GPU, in seconds: <code>{command}</code>."
    studies = dict(each for part in source.parts for each in part.studies)
    if studies:
        card = next(part.card for part in source.parts if part.studies)
        took = f"{sum(studies.values()) / 60:.0f} minutes" if sum(studies.values()) >= 90 else "a minute"
        measure = f"<code>make measure NEW_RUN=1 STUDY={','.join(studies)}</code>"
        told += f" Measured anew: {measure}, {took} of an {card.removeprefix('NVIDIA ')}."
    return f"{told}</p>"


def permalink(anchor: str) -> str:
    """The link beside a caption; it works offline too."""
    return f"<a class='permalink' href='#{anchor}' title='Link to this place'>link</a>"


def to_file(path: str) -> str:
    """A file or folder of the repository at this commit, as a link where the repository has an address."""
    address, shown = edition().source(path, this_commit()), f"<code>{escape(path)}</code>"
    return f"<a href='{address}'>{shown}</a>" if address else shown


def bibtex(anchor: str, title: str, source: Source, path: str = "") -> str:
    """The entry of a figure or table, by its anchor and its path below the address of the book."""
    told = str(source) if len(source.runs) <= FEW_RUNS else f"{source.brief}, {len(source.runs)} runs"
    note = "; ".join(filter(None, (anchor.replace("-", " ", 1).capitalize(), told, LICENSE)))
    book = f"In: {{{latex(edition().title)}}}"
    return _entry(f"{KEY}-{anchor}", title, path, howpublished=book, note=latex(note))


def bibtex_of_edition() -> str:
    return _entry(KEY, edition().title, "index.html", note=latex(LICENSE))


def latex(text: str) -> str:
    """Text as LaTeX prints it; addresses are left as they are, which it sets as such."""
    return text.translate(LATEX)


def _entry(key: str, title: str, path: str, **more: str) -> str:
    """BibTeX of a figure or table; no fields for an address or DOI that the edition lacks."""
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


@functools.cache
def _rows_of(card: str) -> str:
    """The folder of a card's rows, by the name that pages show, or nothing."""
    return next((f"data/measured/{slug}/" for slug in known_gpus() if Evidence.load(slug).card == card), "")


def _part(part: Part) -> str:
    """One part of a source as a line of its facts: what, and each run with its rows, its commit and its day."""
    folder, told = _rows_of(part.card), []
    for run in part.runs:
        rows = f"rows {to_file(folder + run.name)}" if folder else escape(run.name)
        told.append(", ".join(filter(None, (rows, f"commit {run.commit}" if run.commit else "", run.date))))
    return f"<li>{': '.join(filter(None, (escape(part.words[:1].upper() + part.words[1:]), '; '.join(told))))}</li>"


def block(anchor: str, title: str, source: Source, files: str, path: str = "") -> str:
    """The block below a figure or table: files, facts, licence, BibTeX; and of the numbers in the page's text."""
    command = f"<code>python -m analysis number {_told[0]}</code>" if _told else ""
    others = f", and so for {', '.join(_told[1:])}" * bool(_told[1:])
    numbers = f"<p>The numbers in the text: {command}{others}. All are in {to_file('data/numbers.csv')}.</p>"
    return (
        f"<details class='cite'><summary>Make it again, cite or download</summary>{again(source)}<p>{files}. "
        f"<a href='{LICENSE_URL}'>{LICENSE}</a>.</p><ul>{''.join(map(_part, source.parts))}</ul>"
        f"{numbers * bool(_told)}"
        f"<pre>{escape(bibtex(anchor, title, source, path))}</pre></details>"
    )


def table(what: Table, source: Source, anchor: str, summary: str = "") -> str:
    """A table as HTML with a permalink, a download and how to cite it; `source` where it names none of its own.

    With a summary it is folded below that. Without one it is open, but for phones, which fold it below its title.
    """
    title = what.title or f"Table of {', '.join(what.plain().header)}"
    csv = f"<a download='{anchor}.csv' href='data:text/csv;charset=utf-8,{quote(what.csv())}'>CSV</a>"
    state = "" if summary else " shown' open='"
    return (
        f"<details class='evidence-table{state}' id='{anchor}'><summary>{summary or escape(title)}</summary>"
        f"{what._repr_html_()}<div class='below'>{permalink(anchor)}"
        f"{block(anchor, title, what.source or source, csv)}</div></details>"
    )
