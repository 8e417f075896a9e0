"""Functions for notebooks: load the evidence, say, show, findings, steps of a ladder, and lines of a version's source.

Findings are the sentences of the reference edition; on another card a badge says how that card compares.
"""

import inspect
import re
import textwrap
from collections import Counter
from typing import Any

from IPython.display import HTML, Markdown, display

from kernels import version

from ..evidence import Evidence, measured
from ..figures.style import Plot
from ..findings import DIFFERS, HOLDS, NOT_MEASURED, OPEN, committed
from ..findings import load as known_findings
from ..record.files import REFERENCE, DataError, gpu_folder
from ..studies import studies as named
from ..tables.steps import told
from ..tables.table import Table, mark, missing, short
from . import citing, saving
from .edition import edition
from .sources import change_text, diff_text

FIGURE, TABLE = "figure", "table"  # keys, in the metadata of a notebook's output, that hold what it shows
SENTENCE = re.compile(r"(?<=[.!?]) ")  # between two sentences of a caption
SOURCES = ("recorded", "live")
STYLE = {HOLDS: "ok", DIFFERS: "wrong", OPEN: "stale", NOT_MEASURED: "unsupported"}


def load(gpu: str | int, source: str = "recorded", *studies: str) -> Evidence:
    """The evidence of a GPU as recorded, or with the source "live" of the card at hand, once `studies` are measured."""
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


def raw(html: str) -> None:
    display(HTML(html))


_seen: Counter[str] = Counter()  # anchors of tables of this page


def show(what: Plot | Table | str, e: Evidence, folded: str = "") -> None:
    """Save and show a figure, or a table with how to cite it, or say what is missing for it.

    A table may be `folded` below a line that says what it has. Of several with one name, the address of the second ends
    in -2.
    """
    if isinstance(what, Plot):
        where = saving.folder(e.slug)
        saving.save(what, where)
        first = SENTENCE.split(what.caption, maxsplit=1)[0]
        about = {"id": what.id, "title": what.title, "alt": what.alt, "told": first}
        display(HTML(saving.to_html(what, where)), metadata={FIGURE: about})
    elif isinstance(what, Table) and what.rows:
        anchor = what.anchor()
        _seen[anchor] += 1
        here = anchor if _seen[anchor] == 1 else f"{anchor}-{_seen[anchor]}"
        about = {"id": here, "title": folded or what.title or ", ".join(what.plain().header)}
        display(HTML(citing.table(what, measured(e, "log"), here, folded)), metadata={TABLE: about})
    elif isinstance(what, Table) and what.caption:
        say(what.caption)
    else:
        say(what if isinstance(what, str) else missing())


def listing(*what: Any) -> None:
    """Show the source of functions and classes, or lines of source as they are given; long sums take two lines."""
    sources = (each if isinstance(each, str) else inspect.getsource(each) for each in what)
    text = "\n\n".join("\n".join(map(_on_a_phone, each.rstrip().splitlines())) + "\n" for each in sources)
    say(f"```python\n{text}```")


def change(before: str, after: str) -> None:
    """Show two excerpts of source as a diff."""
    say(f"```diff\n{change_text(before, after)}```")


def _on_a_phone(line: str, columns: int = 50) -> str:
    """A line of source; longer than a phone shows, it is broken before a plus sign, or else behind an equals sign."""
    signs = (i for i in range(columns - 2) if line.startswith(" + ", i))
    outside = [i for i in signs if line.count("[", 0, i) == line.count("]", 0, i)]
    at = outside[-1] if outside else line.find(" = ") + 2
    indent = len(line) - len(line.lstrip()) + 4
    if len(line) <= columns or at < indent or len(line) - at + indent > columns:
        return line
    return f"{line[:at]} \\\n{' ' * indent}{line[at + 1 :]}"


def advice(arguments: str) -> None:
    """Show the command `advise` with some arguments, and what it prints, up to the first measured shape."""
    from ..models import advice  # which loads what calls of the op load

    try:
        told = advice.told(arguments.split()).splitlines()
    except DataError as error:
        told = [str(error)]
    command = textwrap.wrap(f"$ python -m analysis advise {arguments}", 46, break_on_hyphens=False)
    shapes = [line for line in told if line.startswith("  ")]
    kept = [line for line in told if line not in shapes[1:]] + ["  ..."] * bool(shapes[1:])
    lines = (textwrap.fill(line, 48, subsequent_indent="    ") for line in kept)
    say("\n".join(["```text", " \\\n    ".join(command), *lines, "```"]))


def badge(word: str) -> str:
    return mark(word, STYLE[word])


def paragraph(e: Evidence, *ids: str) -> str:
    """Some findings in one paragraph, as Markdown; on another card than the reference's marked, each with a badge."""
    known = known_findings()
    if unknown := [each for each in ids if each not in known]:
        raise DataError(f"there is no finding {unknown[0]!r}")
    badges = {each: "" if e.record.is_reference else f" {badge(known[each].on(e).badge)}" for each in ids}
    text = " ".join(known[each].home.text + badges[each] for each in ids).replace(" > - ", "\n> - ")  # lines of a box
    return text if e.record.is_reference else f"<div class='reference-card'>\n\n{text}\n\n</div>"


def written_for(e: Evidence) -> None:
    """Show which card the text is written for, and which the tables and figures are of."""
    written = committed(REFERENCE).card
    text = f"Text, tables and figures are of an {written}, where no other card is named."
    if not e.record.is_reference:
        text = (
            f"<div class='reference-card'>\n\nThe text is written for an {written}, whose numbers it has. A badge at "
            "each finding says how this card compares; [card by card](compare.html) has the numbers of both.\n\n</div>"
            f"\n\nTables and figures are of the {e.card}."
        )
    say(f"{text} {edition().whereabouts}")


def finding(e: Evidence, *ids: str) -> None:
    """Show findings in one paragraph."""
    say(paragraph(e, *ids).replace(" %", "\u00a0%"))


def listed(e: Evidence, *ids: str) -> None:
    """Show findings as a list."""
    items = (paragraph(e, each).replace("\n", "\n  ") for each in ids)
    say("\n".join(f"- {item}" for item in items).replace(" %", "\u00a0%"))


def step(e: Evidence, name: str, *findings: str) -> None:
    """Show a diff of a version against its predecessor, folded, its speed, and findings that say why.

    Of one that has only more shared memory than another the diff is that of the other.
    """
    origin = version(version(name).variant_of or name)
    diff = diff_text(origin.id).rstrip() if origin.parent else ""
    lines = sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in diff.splitlines())
    if diff:
        title = f"Diff against {short(origin.parent or '')}: {lines} lines"
        say(f"<details><summary>{title}</summary>\n\n```diff\n{diff}\n```\n\n</details>")
    say(told(e, name))
    if findings:
        say(paragraph(e, *findings))
