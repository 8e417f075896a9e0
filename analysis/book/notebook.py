"""What a notebook calls: load the evidence, say, show, and lines of a version's source."""

from __future__ import annotations

import inspect
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from IPython.display import HTML, Markdown, display

from ..claims import judge, rule
from ..evidence import Evidence
from ..evidence.current import complete_runs
from ..evidence.known import NOT_MEASURED, REFUSED, Known
from ..evidence.origin import Source, measured_in
from ..evidence.study import Study
from ..figures.style import Plot
from ..measure.studies import studies
from ..record import rows as measured_rows
from ..record.files import DataError, gpu_folder
from ..records.measured import Measured
from ..tables.table import Missing, Table, to, verdict_mark
from . import citing, saving
from .sources import diff_text, kernel_text

FIGURE = "figure"  # the key, in the metadata of a notebook's output, that holds which figure it shows
SOURCES = ("recorded", "live")
FEW = 5  # versions that a sentence can name
MOST = 12  # lines of a diff that a step shows
LEDGER = "claims.html"
UNFOLDED = 2  # claims
Marks = str | tuple[str, str]  # the line that begins so; or from there to the next that begins with the second


def card(gpu: str | int, source: str, names: str) -> str:
    """The folder to read: `gpu`, or with the source "live" that of the card at hand, once its studies are measured.

    Args:
        names: of the studies, separated by commas.

    Raises:
        DataError: `source` is neither "recorded" nor "live".
        MeasureError: it is "live", and there is no GPU or measuring failed.
    """
    if source not in SOURCES:
        raise DataError(f"source is {source!r}; allowed: {', '.join(SOURCES)}")
    if source == "recorded":
        return gpu_folder(gpu).name
    from ..measure.run import measure_studies

    return measure_studies(studies(names))


def load(gpu: str | int, source: str = "recorded", *studies: str) -> Measured:
    """The evidence of a study, the first of several by name: of a GPU as recorded, or measured now, with the others.

    Where no run of the study is complete it is empty; the study `log`, on which the book is built, must be there.

    Raises: MeasureError as `card`; DataError where there is no evidence, or it is damaged.
    """
    study = studies[0] if studies else "log"
    slug = str(card(gpu, source, ",".join(studies or (study,))))
    return Measured.load(slug, study) if study == "log" else try_load(slug, study) or Measured.nothing(slug, study)


def try_load(gpu: str | int, study: str) -> Measured | None:
    """The recorded evidence of a study, or None where no run is complete. Raises: DataError where it is damaged."""
    complete = complete_runs(measured_rows(gpu_folder(gpu), "runs"))
    return Measured.load(str(gpu), study) if study in complete else None


def say(text: str) -> None:
    """Show Markdown."""
    display(Markdown(text))


def show(what: Plot | Table | Missing, evidence: Measured | Evidence) -> None:
    """Save and show a figure, or show a table, or say what is missing for it."""
    if isinstance(what, Missing):
        display(Markdown(what.text(evidence.card)))
    elif isinstance(what, Table):
        if what.rows or not isinstance(evidence, Measured):
            display(HTML(citing.table(what, source_of(evidence), _anchor(what))))
        else:
            display(Markdown(Missing.study(str(evidence.run["study"])).text(evidence.card)))
    else:
        where = saving.folder(evidence.slug)
        saving.save(what, where)
        display(HTML(saving.to_html(what, where)), metadata={FIGURE: {"id": what.id, "title": what.title}})


def source_of(evidence: Measured | Evidence) -> Source:
    """Where the numbers of a table are from that names no source of its own: the evidence that it is shown for."""
    return measured_in(evidence) if isinstance(evidence, Measured) else Source()


_seen: Counter[str] = Counter()  # anchors of this page


def _anchor(table: Table) -> str:
    """Its address in this page; of several with one name, the second ends in -2."""
    anchor = table.anchor()
    _seen[anchor] += 1
    return anchor if _seen[anchor] == 1 else f"{anchor}-{_seen[anchor]}"


def fold(summary: str, what: Table | Missing, evidence: Measured | Evidence) -> None:
    """`show` a table folded below a line that says what it has; what is missing is said openly."""
    if isinstance(what, Table) and what.rows:
        table = citing.table(what, source_of(evidence), _anchor(what))
        display(HTML(f"<details><summary>{summary}</summary>{table}</details>"))
    else:
        show(what, evidence)


# ---------------------------------------------------------------- what does not run, what is stale


def refused(evidence: Measured, *asked: tuple[str, int]) -> None:
    """Show why some versions do not run at a head dim each, or what is known of them there."""

    def why(name: str, hdim: int) -> str:
        problem = evidence.shapes(name, refused=True).get(hdim)
        found = evidence.known(name, problem) if problem else Known(NOT_MEASURED)
        return f"`{name}`: {found.reason if found.word in REFUSED else found.word}"

    say(f"{'; '.join(why(*each) for each in asked)}.")


def _stale(measured: Iterable[Measured | Study | None]) -> dict[str, list[str]]:
    """The versions whose code has changed since they were measured, by study."""
    found = {str(each.run["study"]): each.stale_versions() for each in measured if each}
    return {study: names for study, names in found.items() if names}


def stale_words(*measured: Measured | Study | None) -> str:
    """Which versions have changed since these studies measured them."""
    listed = [f"in the study `{s}` {', '.join(f'`{name}`' for name in names)}" for s, names in _stale(measured).items()]
    if not listed:
        return "No version has changed since it was measured: each row has a hash of its code, whatever its commit."
    return f"**Stale**, as the code has changed since it was measured: {'; '.join(listed)}."


def say_if_stale(*measured: Measured | Study | None) -> None:
    """Say it; nothing where none has."""
    stale = _stale(measured)
    if sum(map(len, stale.values())) > FEW:
        counted = " and ".join(f"{len(names)} versions in the study called `{study}`" for study, names in stale.items())
        where = "[the environment](environment.html) names them"
        display(
            Markdown(f"**Stale**: {counted} were measured before the code of those versions last changed; {where}.")
        )
    elif stale:
        display(Markdown(stale_words(*measured)))


# ---------------------------------------------------------------- sources


def lines(name: str, first: str, last: str) -> None:
    """Show the lines of a version's kernels from the one that begins with `first` to the next that begins with `last`.

    Raises: DataError when there are no such lines.
    """
    text = kernel_text(name).splitlines()
    begins = [place for place, line in enumerate(text) if line.strip().startswith(first)]
    ends = [place for place in range(begins[0], len(text)) if text[place].strip().startswith(last)] if begins else []
    if not ends:
        raise DataError(f"{name!r} has no lines from {first!r} to {last!r}")
    shown = textwrap.dedent("\n".join(text[begins[0] : ends[0] + 1]))
    display(Markdown(f"```python\n{shown}\n```"))


def changed(name: str, gone: Marks | Sequence[Marks] = (), new: Marks | Sequence[Marks] = (), other: str = "") -> None:
    """Show what a version changes in its parent, or in another, as a diff of their sources.

    Of the lines taken out those marked `gone`, of those put in those marked `new`; without marks all of both. A mark is
    how a line begins, or a pair: how the first and the last of some begin; a list has several.

    Raises: DataError where no line begins so, or more than 12 would be shown.
    """
    lines = [line for line in diff_text(name, other or None).splitlines() if line[:3] not in ("---", "+++")]
    out, put = ([line[1:] for line in lines if line[:1] == sign] for sign in "-+")
    out, put = (_marked(name, each, marks, bool(gone or new)) for each, marks in ((out, gone), (put, new)))
    if not 0 < len(out) + len(put) <= MOST:
        raise DataError(f"the diff of {name!r} has {len(out) + len(put)} marked lines; allowed: 1 to {MOST}")
    text = [
        sign + line
        for sign, each in (("-", out), ("+", put))
        for line in textwrap.dedent("\n".join(each)).splitlines()
        if each
    ]
    display(Markdown("```diff\n{}\n```".format("\n".join(text))))


def _marked(name: str, text: list[str], marks: Marks | Sequence[Marks], some: bool) -> list[str]:
    """The marked lines of some that were taken out or put in; all where nothing is marked at all."""
    if not some:
        return [line for line in text if line.strip()]
    single = isinstance(marks, (str, tuple)) and len(marks) > 0
    found: list[str] = []
    for pair in [marks] if single else marks:
        first, last = (pair, pair) if isinstance(pair, str) else pair
        begins = [place for place, line in enumerate(text) if line.strip().startswith(first)]
        ends = (
            [place for place in range(begins[0], len(text)) if text[place].strip().startswith(last)] if begins else []
        )
        if not ends:
            raise DataError(f"the diff of {name!r} has no lines from {first!r} to {last!r}")
        found += text[begins[0] : ends[0] + 1]
    return found


# ---------------------------------------------------------------- claims


def claimed(evidence: Measured, *ids: str) -> None:
    """Show some claims, each in the documents' sense with its verdict on this card and a link to its tests.

    More than `UNFOLDED` are folded under their number and how many have which verdict.

    Raises: DataError for one that there is not.
    """
    recorded = judge.recorded(evidence.slug)
    known_claims = {claim.id: claim for claim in judge.claims()}
    unknown = [name for name in ids if name not in known_claims]
    if unknown:
        raise DataError(f"there is no claim {unknown[0]!r}")
    given = {name: recorded[name][0]["verdict"] if name in recorded else rule.UNDECIDED for name in ids}
    items = (
        f"<li>{to(name, LEDGER)} {escape(known_claims[name].claim)} {verdict_mark(given[name])}</li>" for name in ids
    )
    shown = f"<ul class='evidence-list'>{''.join(items)}</ul>"
    if len(ids) > UNFOLDED:
        counted = ", ".join(f"{number} {word}" for word, number in Counter(given.values()).items())
        shown = f"<details><summary>{len(ids)} claims of the documents: {counted}</summary>{shown}</details>"
    display(HTML(shown))


def listing(*what: Any) -> None:
    """Show the source of functions and classes."""
    text = "\n\n".join(inspect.getsource(each).rstrip() + "\n" for each in what)
    say(f"```python\n{text}```")
