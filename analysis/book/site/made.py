"""Pages that are made once the chapters are executed: all figures, and the artifact description."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import nbformat
import pandas as pd

from kernels import VERSIONS

from ...records import published
from ...records.current import complete_runs
from ...records.files import gpu_folder, is_committed, parsed
from ...records.measured import Measured
from ...verdicts import claims
from .. import saving
from ..citing import bibtex_of_edition
from ..edition import edition
from ..findings import recorded
from ..notebook import FIGURE
from ..templates import render
from .place import Place, chapters, contents

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
        shown = (output.get("metadata", {}).get(FIGURE) for cell in cells for output in cell.get("outputs", ()))
        for figure in filter(None, shown):
            if figure["id"] not in seen:
                seen.add(figure["id"])
                yield Entry(**figure, chapter=name, heading=heading)


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
        figures=_agreement(evidence.slug),
        slug=evidence.slug,
        card=evidence.card,
        minutes=round(took.total_seconds() / 60),
        first=f"{times['started_at'].min():%Y-%m-%d}" if times else "",
        last=f"{times['finished_at'].max():%Y-%m-%d}" if times else "",
    )


def _agreement(slug: str) -> str:
    """How the built figures compare with the recorded checksums."""
    if not is_committed(slug):
        return "Checksums are recorded of the reference's figures alone; on that record this says which CSVs differ:"
    differ = saving.differing(saving.folder(slug))
    said = f"differ in {', '.join(differ)}" if differ else "are those of this edition"
    return f"The CSVs of this book {said}, by `data/figures.sha256`; to check yours:"


PAGES: dict[str, Callable[[Place, Measured], str]] = {"book/figure-index": figure_index, "book/artifact": artifact}


def write(place: Place, evidence: Measured) -> None:
    """Make those of the pages that _toc.yml has."""
    for name in PAGES.keys() & set(contents()):
        (place.source / f"{name}.md").write_text(PAGES[name](place, evidence), encoding="utf-8")
