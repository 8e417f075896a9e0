"""Pages that are made once the chapters are executed: all figures, and the artifact description."""

from __future__ import annotations

import re
from html import escape

import nbformat
import pandas as pd

from kernels import VERSIONS

from ... import findings
from ...claims import judge
from ...evidence import Evidence
from ...evidence.current import complete_runs
from ...record import published
from ...record.files import is_committed
from .. import saving
from ..citing import bibtex_of_edition
from ..edition import edition
from ..notebook import FIGURE
from ..templates import render
from .place import Place, chapters, contents

HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


def figure_index(place: Place) -> str:
    """A thumbnail of each figure of the executed chapters, which leads to the place where it stands first."""
    items: dict[str, str] = {}
    for name in chapters():
        cells = nbformat.read(place.chapters / f"{name}.ipynb", as_version=4).cells
        heading = next((found[1] for cell in cells if (found := HEADING.search(cell.source))), name)
        shown = (output.get("metadata", {}).get(FIGURE) for cell in cells for output in cell.get("outputs", ()))
        for figure in filter(None, shown):
            items.setdefault(
                figure["id"],
                f"<li><a href='chapters/{name}.html#figure-{figure['id']}'>"
                f"<img src='figures/{figure['id']}.png' alt='' loading='lazy'>{escape(figure['title'])}</a><br>"
                f"<small>{escape(heading)}</small></li>",
            )
    told = "Each figure leads to its place in the book, where its files, its data and how to cite it are."
    return f"# Figures\n\n{told}\n\n<ul class='figure-index'>{''.join(items.values())}</ul>\n"


def artifact(place: Place, e: Evidence) -> str:
    """What is claimed, what checking it takes, and what may vary."""
    runs = pd.DataFrame(complete_runs(e.record.complete).values())
    times = {name: pd.to_datetime(runs[name]) for name in ("started_at", "finished_at")} if len(runs) else {}
    took = (times["finished_at"] - times["started_at"]).groupby(runs["run"]).max().sum() if times else pd.Timedelta(0)
    return render(
        "artifact.md",
        edition=edition(),
        findings=len(findings.load()),
        claims=len(judge.claims()),
        published=len(published.load()),
        versions=len(VERSIONS),
        bibtex=bibtex_of_edition(),
        differ=saving.differing(saving.folder(e.slug)) if is_committed(e.slug) else None,
        slug=e.slug,
        card=e.card,
        minutes=round(took.total_seconds() / 60),
        first=f"{times['started_at'].min():%Y-%m-%d}" if times else "",
        last=f"{times['finished_at'].max():%Y-%m-%d}" if times else "",
    )


def write(place: Place, e: Evidence) -> None:
    """Make those of the pages that _toc.yml has."""
    for name, text in (("figure-index", figure_index(place)), ("artifact", artifact(place, e))):
        if f"book/{name}" in contents():
            (place.source / "book" / f"{name}.md").write_text(text, encoding="utf-8")
