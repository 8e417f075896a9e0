"""What a notebook calls: load the evidence, say, show, and lines of a version's source."""

import inspect
from collections import Counter
from typing import Any

from IPython.display import HTML, Markdown, display

from ..evidence import Evidence, Study
from ..evidence.origin import measured
from ..figures.style import Plot
from ..measure.studies import studies as named
from ..record.files import DataError, gpu_folder
from ..tables.table import Missing, Table
from . import citing, saving

FIGURE = "figure"  # the key, in the metadata of a notebook's output, that holds which figure it shows
SOURCES = ("recorded", "live")


def load(gpu: str | int, source: str = "recorded", *studies: str) -> Evidence:
    """The evidence of a GPU as recorded, or with the source "live" of the card at hand, once `studies` are measured.

    Raises: DataError for another source, an unknown GPU, a damaged file, or where `log`, on which the book is built, is
    not measured; MeasureError where there is no GPU to measure on, or measuring failed.
    """
    if source not in SOURCES:
        raise DataError(f"source is {source!r}; allowed: {', '.join(SOURCES)}")
    _seen.clear()  # a page begins
    slug: Any = gpu_folder(gpu).name if source == "recorded" else ""
    if source == "live":
        from ..measure.run import measure_studies

        slug = measure_studies(named(",".join(studies or ("log",))))
    e = Evidence.load(slug)
    if "log" in (studies or ("log",)) and not e.study("log"):
        raise DataError(f"{e.record.folder}: no run of study 'log' is complete; `make measure` brings one to its end")
    return e


def say(text: str) -> None:
    display(Markdown(text))


def show(what: Plot | Table | Missing, e: Evidence) -> None:
    """Save and show a figure, or show a table, or say what is missing for it."""
    if isinstance(what, Plot):
        where = saving.folder(e.slug)
        saving.save(what, where)
        told = {"id": what.id, "title": what.title, "alt": what.alt}
        display(HTML(saving.to_html(what, where)), metadata={FIGURE: told})
    elif isinstance(what, Table) and what.rows:
        display(HTML(_cited(what, e)))
    elif isinstance(what, Table) and what.caption:
        say(what.caption)
    else:
        say((what if isinstance(what, Missing) else Missing()).text(e.card))


def fold(summary: str, what: Table | Missing, e: Evidence) -> None:
    """`show` a table folded below a line that says what it has; what is missing is said openly."""
    if isinstance(what, Table) and what.rows:
        display(HTML(_cited(what, e, summary)))
    else:
        show(what, e)


_seen: Counter[str] = Counter()  # anchors of this page


def _cited(table: Table, e: Evidence, summary: str = "") -> str:
    """A table with how to cite it; of several with one name, the address of the second ends in -2."""
    anchor = table.anchor()
    _seen[anchor] += 1
    here = anchor if _seen[anchor] == 1 else f"{anchor}-{_seen[anchor]}"
    return citing.table(table, measured(e, "log"), here, summary)


def stale_words(*studies: Study) -> str:
    """Which versions have changed since these studies measured them; nothing where none has."""
    found = {study.name: study.stale_versions() for study in studies}
    listed = [f"in the study `{s}` {', '.join(f'`{name}`' for name in names)}" for s, names in found.items() if names]
    return f"**Stale**, as the code has changed since it was measured: {'; '.join(listed)}." if listed else ""


def listing(*what: Any) -> None:
    """Show the source of functions and classes, or lines of source as they are given."""
    sources = (each if isinstance(each, str) else inspect.getsource(each) for each in what)
    text = "\n\n".join(each.rstrip() + "\n" for each in sources)
    say(f"```python\n{text}```")
