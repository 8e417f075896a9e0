"""Tables of the book as HTML, and how a cell is written."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import Any

import pandas as pd

from kernels import VERSIONS, Problem, Version

from ..claims.rule import BETWEEN, FALLS, STANDS, told
from ..evidence import Estimate, Evidence, Known, Source
from ..evidence.known import NOT_MEASURED, RAN, UNDECIDED
from ..record.published import Published
from ..record.text import factor

PEERS = "peers"  # the page of them all
SENTENCE = 60  # characters: a longer cell does not fit beside others on a phone
FAMILIES = {"rope": "RoPE", "fp16": "Half precision", "alibi": "ALiBi"}  # the others are capitalised
VERDICT_STYLE = {
    **dict.fromkeys(STANDS, "ok"),
    **dict.fromkeys(BETWEEN, "stale"),
    **dict.fromkeys(FALLS, "wrong"),
    UNDECIDED: "unsupported",
}


@dataclass(frozen=True)
class Table:
    """Rows of HTML cells. `numbers` names the columns that are set flush right; equal first cells are joined.

    A row of a single cell is a heading for those below it.

    `id` is its address in a page and `title` what it is called, by default made from its header; `source` where its
    numbers are from, by default the evidence that it is shown for.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] = ()
    caption: str = ""
    id: str = ""
    source: Source | None = None
    title: str = ""

    def plain(self) -> "Table":
        """The same without HTML, for Markdown."""

        def text(html: str) -> str:
            return re.sub("<[^>]+>", "", html.replace("<br>", " "))

        rows = [tuple(map(text, row)) for row in self.rows]
        return Table(tuple(map(text, self.header)), rows, caption=text(self.caption))

    def csv(self) -> str:
        """The text of the cells, without HTML."""
        plain = self.plain()
        frame = pd.DataFrame([map(unescape, row) for row in plain.rows], columns=plain.header)
        return frame.to_csv(index=False, lineterminator="\n")

    def anchor(self) -> str:
        """Its address, by its header where it has none."""
        return f"table-{self.id or re.sub('[^a-z0-9]+', '-', ' '.join(self.plain().header).lower()).strip('-')}"

    def _repr_html_(self) -> str:
        labels = [escape(unescape(re.sub("<[^>]+>", " ", title)), quote=True) for title in self.header]

        def cell(tag: str, column: int, text: str, attributes: str = "") -> str:
            kind = "number" if self.header[column] in self.numbers else self.header[column].split(",")[0]
            label = f" data-label='{labels[column]}'" if tag == "td" else ""  # for phones, which show rows as cards
            text = text.replace("<br>", "<br> ")  # a search strips tags, and words are not to run together
            return f"<{tag} class='{kind}'{attributes}{label}>{text}</{tag}> "

        head = "".join(cell("th", i, name, ' scope="col"') for i, name in enumerate(self.header))
        body = []
        for first, group in itertools.groupby(self.rows, key=lambda row: row[0]):
            rows = list(group)
            if len(rows[0]) == 1 < len(self.header):
                body.append(f"<tr class='part'><th scope='rowgroup' colspan='{len(self.header)}'>{first}</th></tr>")
                continue
            start = cell("th", 0, first, f' scope="rowgroup" rowspan="{len(rows)}"')
            for place, row in enumerate(rows):
                cells = "".join(cell("td", i, text) for i, text in enumerate(row) if i)
                body.append(f"<tr class='{'' if place else 'group'}'>{'' if place else start}{cells}</tr>")
        caption = f"<p class='evidence-caption'>{self.caption}</p>" if self.caption else ""
        sentences = any(len(text) > SENTENCE for row in self.plain().rows for text in row)
        kinds = "evidence cards" if sentences else "evidence"
        table = f"<table class='{kinds}'><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        return f"<div class='evidence-scroll' tabindex='0'>{table}</div>{caption}"


def missing(study: str = "", command: str = "") -> str:
    """A note in place of a figure or table without evidence, with the command that measures it."""
    command = f"make measure STUDY={study}" if study else command
    return f"*Not measured here{f': `{command}`' if command else ''}.*"


def family_title(family: str) -> str:
    return FAMILIES.get(family, family.capitalize())


def short(version: str) -> str:
    """The name within its family: `"rope_v7"` to `"V7"`."""
    words = version.removeprefix(f"{VERSIONS[version].family}_").replace("_", " ")
    return words[0].upper() + words[1:]


def has_page(version: Version) -> bool:
    """Whether it is a version of the log, but not a build of one with other flags, or V8 or another that users call."""
    return not (version.is_peer or version.ablation or version.control_of or version.built_from != version.id)


def page_of(name: str) -> str:
    """The version on whose page one stands: itself, or that of which it changes something; peers share a page."""
    version = VERSIONS[name]
    if has_page(version):
        return name
    changed = version.control_of or (version.built_from if version.built_from != name else version.parent)
    return page_of(changed) if changed else PEERS


def address(name: str) -> str:
    """The file and anchor of a version among the pages of the versions."""
    page = page_of(name)
    return f"{page}.html" if page == name else f"{page}.html#{name}"


def code(version: str) -> str:
    """An id that may break after an underscore."""
    return f"<code>{escape(version).replace('_', '_<wbr>')}</code>"


def link(version: str, text: str = "") -> str:
    """An id that leads to where the version stands, from a chapter as from the page of a version."""
    return f"<a href='../versions/{address(version)}'>{text or code(version)}</a>"


def lines(*parts: str) -> str:
    """The parts that are not empty, one below the other."""
    return "<br>".join(part for part in parts if part)


def small(text: str) -> str:
    return f"<small>{text}</small>"


def to(anchor: str, page: str = "") -> str:
    return f"<a href='{page}#{anchor}'>{anchor}</a>"


def mark(word: str, style: str = "") -> str:
    """A word in the colour of a style, of its own by default."""
    return f"<span class='status {style or word}'>{word}</span>"


def verdict_mark(word: str) -> str:
    """The verdict of a claim."""
    return mark(told(word), VERDICT_STYLE[word])


def status(found: Any) -> str:
    """The status of a version on a problem, in its colour, with the reason as a tooltip."""
    if found.word == NOT_MEASURED:
        return small(NOT_MEASURED)
    why = f" title='{escape(found.reason, quote=True)}'" if found.reason and found.word not in RAN else ""
    return f"<span class='status {found.word}'{why}>{found.word}</span>"


def why_none(one: Estimate) -> Known:
    """Why a version has no time: of one that ran, its time is what is not measured."""
    why = one.why or Known(NOT_MEASURED)
    return Known(NOT_MEASURED) if why.word in (*RAN, UNDECIDED) else why


def time_cell(us: Estimate) -> str:
    """Microseconds with half the range of the processes, or why there are none."""
    if not (us and us.sample):
        return status(why_none(us))
    times = us.sample.values[us.sample.measured]
    return f"{us.value:.1f} {small(f'± {(times.max() - times.min()) / 2:.1f}')}"


def speedup_cell(e: Evidence, version: str, over: str, problem: Problem, study: str) -> str:
    """The speedup of a version over another, or why one of the two has no time."""
    if found := e.speedup(version, over, study, "device_warm", problem=problem)[problem]:
        return ratio(found)
    own, other = (e.time(each, study, "device_warm", problem=problem)[problem] for each in (version, over))
    return lines(status(why_none(other)), small(code(over))) if own else status(why_none(own))


def ratio(value: Estimate) -> str:
    interval = f"<br>{small(f'{value.low:.2f}–{value.high:.2f}')}" if value.low == value.low else ""
    return f"{factor(value.value)}{interval}"


def stated(value: Published) -> str:
    first, low, high = (f"{each:.2f}" for each in (value.value, value.low, value.high))
    return f"{first}×" + (f"<br>{small(f'{low}–{high}')}" if low != high else "")
