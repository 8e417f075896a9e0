"""What a notebook calls: load the evidence, say, show, and lines of a version's source."""

from __future__ import annotations

import inspect
import textwrap
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from IPython.display import HTML, Markdown, display

from ..claims import judge, rule
from ..evidence import Evidence, Study
from ..evidence.known import REFUSED
from ..evidence.origin import measured
from ..figures.style import Plot
from ..measure.studies import studies as named
from ..record.files import DataError, gpu_folder
from ..tables.table import Missing, Table, to, verdict_mark
from . import citing, saving
from .sources import diff_text, kernel_text

FIGURE = "figure"  # the key, in the metadata of a notebook's output, that holds which figure it shows
SOURCES = ("recorded", "live")
FEW = 5  # versions that a sentence can name
MOST = 12  # lines of a diff that a step shows
UNFOLDED = 2  # claims
Marks = str | tuple[str, str]  # the line that begins so; or from there to the next that begins with the second


def load(gpu: str | int, source: str = "recorded", *studies: str) -> Evidence:
    """The evidence of a GPU as recorded, or with the source "live" of the card at hand, once `studies` are measured.

    Raises: DataError for another source, an unknown GPU, a damaged file, or where `log`, on which the book is built, is
    not measured; MeasureError where there is no GPU to measure on, or measuring failed.
    """
    if source not in SOURCES:
        raise DataError(f"source is {source!r}; allowed: {', '.join(SOURCES)}")
    slug: Any = gpu_folder(gpu).name if source == "recorded" else ""
    if source == "live":
        from ..measure.run import measure_studies

        slug = measure_studies(named(",".join(studies or ("log",))))
    e = Evidence.load(slug)
    if "log" in (studies or ("log",)) and not e.study("log"):
        raise DataError(f"{e.record.folder}: no run of study 'log' is complete; `make measure` brings one to its end")
    return e


def say(text: str) -> None:
    """Show Markdown."""
    display(Markdown(text))


def show(what: Plot | Table | Missing, e: Evidence) -> None:
    """Save and show a figure, or show a table, or say what is missing for it."""
    if isinstance(what, Plot):
        where = saving.folder(e.slug)
        saving.save(what, where)
        display(HTML(saving.to_html(what, where)), metadata={FIGURE: {"id": what.id, "title": what.title}})
    elif isinstance(what, Table) and what.rows:
        display(HTML(_cited(what, e)))
    else:
        say((what if isinstance(what, Missing) else Missing()).text(e.card))


def fold(summary: str, what: Table | Missing, e: Evidence) -> None:
    """`show` a table folded below a line that says what it has; what is missing is said openly."""
    if isinstance(what, Table) and what.rows:
        display(HTML(f"<details><summary>{summary}</summary>{_cited(what, e)}</details>"))
    else:
        show(what, e)


_seen: Counter[str] = Counter()  # anchors of this page


def _cited(table: Table, e: Evidence) -> str:
    """A table with how to cite it; of several with one name, the address of the second ends in -2."""
    anchor = table.anchor()
    _seen[anchor] += 1
    return citing.table(table, measured(e, "log"), anchor if _seen[anchor] == 1 else f"{anchor}-{_seen[anchor]}")


# ---------------------------------------------------------------- what does not run, what is stale


def refused(e: Evidence, *asked: tuple[str, int]) -> None:
    """Show why some versions do not run at a head dim each, or what is known of them there."""

    def why(name: str, hdim: int) -> str:
        problem = e.study("log").shapes(name, refused=True).get(hdim)
        found = e.study("log").known(name, problem) if problem else None
        word = found.word if found else "not measured"
        return f"`{name}`: {found.reason if found and word in REFUSED else word}"

    say(f"{'; '.join(why(*each) for each in asked)}.")


def stale_words(*studies: Study) -> str:
    """Which versions have changed since these studies measured them; nothing where none has."""
    found = {study.name: study.stale_versions() for study in studies}
    listed = [f"in the study `{s}` {', '.join(f'`{name}`' for name in names)}" for s, names in found.items() if names]
    return f"**Stale**, as the code has changed since it was measured: {'; '.join(listed)}." if listed else ""


def say_if_stale(*studies: Study) -> None:
    """Say it; nothing where none has."""
    found = {study.name: len(study.stale_versions()) for study in studies}
    if sum(found.values()) > FEW:
        counted = " and ".join(f"{number} versions in the study `{name}`" for name, number in found.items() if number)
        say(f"**Stale**: {counted} changed since they were measured; [the environment](environment.html) names them.")
    elif any(found.values()):
        say(stale_words(*studies))


# ---------------------------------------------------------------- sources


def _lines_from(text: Sequence[str], first: str, last: str, name: str) -> list[str]:
    """The lines from the one that begins with `first` to the next that begins with `last`. Raises: DataError."""
    begins = [place for place, line in enumerate(text) if line.strip().startswith(first)]
    ends = [place for place in range(begins[0], len(text)) if text[place].strip().startswith(last)] if begins else []
    if not ends:
        raise DataError(f"{name} has no lines from {first!r} to {last!r}")
    return [*text[begins[0] : ends[0] + 1]]


def lines(name: str, first: str, last: str) -> None:
    """Show the lines of a version's kernels from the one that begins with `first` to the next that begins with `last`.

    Raises: DataError when there are no such lines.
    """
    shown = _lines_from(kernel_text(name).splitlines(), first, last, repr(name))
    say("```python\n{}\n```".format(textwrap.dedent("\n".join(shown))))


def changed(name: str, gone: Marks | Sequence[Marks] = (), new: Marks | Sequence[Marks] = (), other: str = "") -> None:
    """Show what a version changes in its parent, or in another, as a diff of their sources.

    Of the lines taken out those marked `gone`, of those put in those marked `new`; without marks all of both. A mark is
    how a line begins, or a pair: how the first and the last of some begin; a list has several.

    Raises: DataError where no line begins so, or more than 12 would be shown.
    """
    diff = [line for line in diff_text(name, other or None).splitlines() if line[:3] not in ("---", "+++")]
    shown = []
    for sign, marks in (("-", gone), ("+", new)):
        mine = [line[1:] for line in diff if line[:1] == sign]
        chosen = []
        for pair in [marks] if isinstance(marks, (str, tuple)) and marks else marks:
            first, last = (pair, pair) if isinstance(pair, str) else pair
            chosen += _lines_from(mine, first, last, f"the diff of {name!r}")
        chosen = chosen if gone or new else [line for line in mine if line.strip()]
        shown += [sign + line for line in textwrap.dedent("\n".join(chosen)).splitlines() if chosen]
    if not 0 < len(shown) <= MOST:
        raise DataError(f"the diff of {name!r} has {len(shown)} marked lines; allowed: 1 to {MOST}")
    say("```diff\n{}\n```".format("\n".join(shown)))


def listing(*what: Any) -> None:
    """Show the source of functions and classes."""
    text = "\n\n".join(inspect.getsource(each).rstrip() + "\n" for each in what)
    say(f"```python\n{text}```")


# ---------------------------------------------------------------- claims


def claimed(e: Evidence, *ids: str) -> None:
    """Show some claims, each in the documents' sense with its verdict on this card and a link to its tests.

    More than `UNFOLDED` are folded under their number and how many have which verdict.

    Raises: DataError for one that there is not.
    """
    recorded = judge.recorded(e.slug)
    known_claims = {claim.id: claim for claim in judge.claims()}
    if unknown := [name for name in ids if name not in known_claims]:
        raise DataError(f"there is no claim {unknown[0]!r}")
    given = {name: recorded[name][0]["verdict"] if name in recorded else rule.UNDECIDED for name in ids}
    items = (
        f"<li>{to(name, 'claims.html')} {escape(known_claims[name].claim)} {verdict_mark(given[name])}</li>"
        for name in ids
    )
    shown = f"<ul class='evidence-list'>{''.join(items)}</ul>"
    if len(ids) > UNFOLDED:
        counted = ", ".join(f"{number} {word}" for word, number in Counter(given.values()).items())
        shown = f"<details><summary>{len(ids)} claims of the documents: {counted}</summary>{shown}</details>"
    display(HTML(shown))
