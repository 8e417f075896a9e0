"""Pages that are made once the chapters are executed: all figures, and the artifact description."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape, unescape
from pathlib import Path
from typing import NamedTuple

import nbformat
import pandas as pd

from kernels import VERSIONS

from ...records import published
from ...records.current import complete_runs
from ...records.files import gpu_folder, parsed
from ...records.measured import Measured
from ...verdicts import claims
from ..citing import bibtex_of_edition
from ..edition import edition
from ..findings import recorded
from ..templates import render
from .place import Place, chapters, contents

FIGURE = re.compile(r"<figure class='evidence' id='figure-([^']+)'><p class='figure-title'>(.*?)</p>")
HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


class Entry(NamedTuple):
    """A figure of the book: its id and title, the chapter that shows it first, and that chapter's heading."""

    id: str
    title: str
    chapter: str
    heading: str


def entries(folder: Path, names: Sequence[str]) -> Iterator[Entry]:
    """The figures of the executed chapters in a folder, in the order of the book, each at its first place."""
    seen: set[str] = set()
    for name in names:
        cells = nbformat.read(folder / f"{name}.ipynb", as_version=4).cells
        heading = next((found[1] for cell in cells if (found := HEADING.search(cell.source))), name)
        shown = "".join(
            str(output.get("data", {}).get("text/html", "")) for c in cells for output in c.get("outputs", ())
        )
        for id, title in FIGURE.findall(shown):
            if id not in seen:
                seen.add(id)
                yield Entry(id, unescape(title), name, heading)


def figure_index(place: Place, evidence: Measured) -> str:
    """A thumbnail of each figure, which leads to its place."""
    items = "".join(
        f"<li><a href='chapters/{each.chapter}.html#figure-{each.id}'>"
        f"<img src='figures/{each.id}.png' alt='' loading='lazy'>{escape(each.title)}</a><br>"
        f"<small>{escape(each.heading)}</small></li>"
        for each in entries(place.chapters, chapters())
    )
    told = "Each figure leads to its place in the book, where its files, its data and how to cite it are."
    return f"# Figures\n\n{told}\n\n<ul class='figure-index'>{items}</ul>\n"


def artifact(place: Place, evidence: Measured) -> str:
    """What is claimed, what checking it takes, and what may vary."""
    cells = (nbformat.read(place.chapters / f"{name}.ipynb", as_version=4).cells for name in chapters())
    runs = pd.DataFrame(complete_runs(parsed(gpu_folder(evidence.slug) / "runs.csv", "runs")).values())
    times = {name: pd.to_datetime(runs[name]) for name in ("started_at", "finished_at")} if len(runs) else {}
    took = (times["finished_at"] - times["started_at"]).groupby(runs["run"]).max().sum() if times else pd.Timedelta(0)
    return render(
        "artifact.md",
        edition=edition(),
        findings=sum(len(list(recorded(each))) for each in cells),
        claims=len(claims.load()),
        published=len(published.load()),
        versions=len(VERSIONS),
        bibtex=bibtex_of_edition(),
        card=evidence.card,
        minutes=round(took.total_seconds() / 60),
        first=f"{times['started_at'].min():%Y-%m-%d}" if times else "",
        last=f"{times['finished_at'].max():%Y-%m-%d}" if times else "",
    )


PAGES: dict[str, Callable[[Place, Measured], str]] = {"book/figure-index": figure_index, "book/artifact": artifact}


def write(place: Place, evidence: Measured) -> None:
    """Make those of the pages that _toc.yml has."""
    for name in PAGES.keys() & set(contents()):
        (place.source / f"{name}.md").write_text(PAGES[name](place, evidence), encoding="utf-8")
