"""A page of the book for every version of the log and of V8's family, and one for all peers, made from data.

An ablation, a build or a control stands on the page of the version of which it changes something. What a version is
comes from its registration and its plans, what it does from the tables under data/, what it looks like from its source.
No page is in the contents: the chapter of all versions, and every name of one, leads there.
"""

import inspect
import re
import sys
from collections.abc import Iterable
from html import escape
from pathlib import Path

from kernels import VERSIONS, Version

from ..claims import judge
from ..evidence import Evidence
from ..record.files import ROOT
from ..tables import versions
from ..tables.claims import verdicts
from ..tables.table import PEERS, Table, has_page, link, page_of
from . import citing, sources

HEAD = "---\norphan: true\n---\n\n"  # in no table of contents
CHAPTER = "[Every version](../chapters/versions.ipynb)"


def html(what: Table | str) -> str:
    """A table as HTML, nothing of an empty one; a text as it is."""
    return what if isinstance(what, str) else what._repr_html_() if what.rows else ""


def joined(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))


def section(title: str, part: Table | str) -> str:
    """A table or text under a heading; nothing where it is empty."""
    return f"## {title}\n\n{text}" if (text := html(part)) else ""


def folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>" if text else ""


def listed(reasons: Iterable[tuple[str, str, str]]) -> str:
    """A badge, a text and the head dims of each of some reasons."""
    items = [f"<li>{badge} {escape(text)} <small>at head dim {dims}</small></li>" for badge, text, dims in reasons]
    return f"<ul class='evidence-list'>{''.join(items)}</ul>" if items else ""


def about(version: Version) -> str:
    """A version's change, source, baseline, and the address of its code."""
    change = version.change[:1].upper() + version.change[1:]
    if version.parent:
        change = f"Changes {link(version.parent)}: {version.change}"
    kind = f"*Source*: {version.source}."
    if version.ablation:
        kind = "An ablation, not a version of the log: one thing changed, to see what it costs."
    elif version.control_of:
        kind = "A control, not a version of the log: the kernels of its port in CUDA C++."
    control = next((each.id for each in VERSIONS.values() if each.control_of == version.id), "")
    path = Path(*version.module.split(".")).with_suffix(".py")
    facts = {
        "Compared with": link(version.baseline) if version.baseline else "",
        "In CUDA C++": link(control) if control else "",
        "Code": citing.to_file(str(path)) if (ROOT / path).is_file() else "",
    }
    told = (f"*{word}*: {fact}." for word, fact in facts.items() if fact)
    return joined([f"**{version.title}**", f"{change}." if change else "", " ".join([kind, *told])])


def measured(e: Evidence, version: Version) -> str:
    """The times at the documents' shapes, and folded, those of the other studies."""
    shown = [(study, html(table)) for study, table in versions.times(e, version)]
    first = shown[0][1] if shown else f"No time was measured on the {e.card}."
    return joined([first, *(folded(*each) for each in shown[1:])])


def checked(e: Evidence, version: Version) -> str:
    """Why results are not right, and folded, why problems are not taken."""
    wrong, refused = versions.reasons(e, version)
    return joined([listed(wrong), folded(f"{len(refused)} reasons why it does not take a problem", listed(refused))])


def _words(version: Version) -> str:
    """The paragraphs of its file and of its planner, without titles and source."""
    documents = (inspect.getdoc(each) for each in (sys.modules.get(version.module), version.plan) if each)
    paragraphs = [text for document in documents for text in (document or "").split("\n\n")[1:]]
    told = (" ".join(text.split()) for text in paragraphs if not text.startswith(("Source:", "Raises:", "    ")))
    return "\n".join("<p>" + re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text)) + "</p>" for text in told)


def changes(version: Version) -> str:
    """The change from its parent, in words and as a diff."""
    diff = sources.diff_text(version.id).rstrip() if version.parent else ""
    return joined([_words(version), f"```diff\n{diff}\n```" if diff else ""])


def others(e: Evidence, page: str, level: str = "###") -> str:
    """Sections, with headings of a level, of the versions that have no page of their own."""
    families = dict.fromkeys(version.family for version in VERSIONS.values())
    found = [each for family in families for each in versions.in_order(family)]
    told = []
    for each in found:
        if not has_page(each) and page_of(each.id) == page:
            parts = [about(each), measured(e, each), checked(e, each), folded("What it changes", changes(each))]
            told.append(joined([f"<div id='{each.id}'></div>", f"{level} {each.id}", *parts]))
    return joined(told)


def page(e: Evidence, version: Version) -> str:
    """The page of a version, as MyST Markdown."""
    named, text = judge.named(e.record), sources.kernel_text(version.id).rstrip()
    claims = [claim for claim in judge.claims() if version.id in named[claim.id]]
    parts = [
        f"# {version.id}\n\n{about(version)}\n\n{CHAPTER}",
        section("Measured", measured(e, version)),
        section("Checked", checked(e, version)),
        section("Claims that name it", verdicts(e, claims)),
        section("Declared hazards", versions.hazards(e, version)),
        section("What the compiler reports", versions.resources(e, version)),
        section("Counted", versions.counts(e, version)),
        section("Hardware counters", versions.counters(e, version)),
        section("What it changes" if version.parent else "What it is", changes(version)),
        section("Source", f"```{'cuda' if '__global__' in text else 'python'}\n{text}\n```"),
        section("Ablations, builds and controls", others(e, version.id)),
    ]
    return HEAD + joined(parts) + "\n"


def write(e: Evidence, folder: Path) -> None:
    """Make the pages in a folder of their own, one of them of what a user would pick instead."""
    texts = {version.id: page(e, version) for version in VERSIONS.values() if has_page(version)}
    told = f"What a user would pick instead of these kernels. {CHAPTER}"
    texts[PEERS] = f"{HEAD}# Peers\n\n{told}\n\n{others(e, PEERS, '##')}\n"
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
