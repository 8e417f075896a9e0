"""A page of the book for every version of the log and of V8's family, and one for all peers, made from data.

An ablation, a build or a control stands on the page of the version of which it changes something. What a version is
comes from its registration and its plans, what it does from the tables under data/, what it looks like from its source.
No page is in the contents: the chapter of all versions, and every name of one, leads there.
"""

import difflib
import inspect
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from html import escape
from pathlib import Path

from kernels import VERSIONS, Version
from kernels.version import FAMILIES

from ..claims import judge
from ..evidence import Evidence
from ..record.files import ROOT
from ..tables import counts, kernel, peers, reasons, versions
from ..tables.claims import verdicts
from ..tables.table import PEERS, Table, has_page, link, page_of
from . import citing, sources
from .stories import served, told

HEAD = "---\norphan: true\n---\n\n"  # in no table of contents
CHAPTER = "[Every version](../chapters/versions.ipynb)"
ALIKE = 0.25  # of the lines of two listings, from which on their diff shows a change
NAMES = {  # what the letters in names of kernels beyond the log mean, by how a name begins
    "attention_wgmma_": "c: blocks of a cluster, q: queries of a tile, w: dims of a slice, g: warpgroups of a block",
    "attention_portable_": "q: queries of a tile, d: head dim, e: keys that a thread takes at a time, l: threads "
    "that share a key, a: warps that take different keys, t: threads of a block",
    "attention_c": "c: blocks of a cluster, q and k: queries and keys of a tile, w: dims of a block, a: warps that "
    "take different keys, d: warps that take different dims",
    "decode_": "d: head dim, r: queries of a tile, u: keys that a lane loads at a time, w: warps, times blocks an SM",
    "wide_": "d: head dim, r: queries of a tile, u: keys of a batch, w: warps, times blocks on an SM, c: blocks of a "
    "cluster",
    "chunk_": "d: head dim, r: queries of a tile, u: keys of a warp, w: warps, times blocks on an SM",
    "prompt_mma_": "d: head dim, r: queries of a tile, times warps that share its keys, s: tiles in shared memory, a: "
    "tiles copied ahead",
    "prompt_wgmma_": "d: head dim, k: keys of a tile, s: tiles in shared memory",
    "prompt_persistent_": "d: head dim, k: keys of a tile, s: tiles in shared memory",
    "prompt_parts_": "d: head dim, g: warpgroups, s: tiles in shared memory",
}


def html(what: Table | str) -> str:
    """A table as HTML below its caption, nothing of an empty one; a text as it is."""
    if isinstance(what, str):
        return what
    caption = f"<p class='evidence-caption above'>{what.caption}</p>\n\n" if what.caption else ""
    return caption + replace(what, caption="")._repr_html_() if what.rows else ""


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


def about(e: Evidence, version: Version) -> str:
    """A version's change, source, what it is compared with, and the address of its code."""
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
        "In CUDA C++": link(control) if control else "",
        "Code": citing.to_file(str(path)) if (ROOT / path).is_file() else "",
    }
    facts_told = (f"*{word}*: {fact}." for word, fact in facts.items() if fact)
    return joined([
        f"**{version.title}**",
        f"{change}." if change else "",
        "\n".join(f"- {text}" for text in in_short(e, version) if text),
        " ".join([kind, *facts_told]),
    ])


def in_short(e: Evidence, version: Version) -> list[str]:
    """The calls that run a version, how fast it is, what it needs of an SM, and what chapters say of it."""
    at = kernel.card_of(e, version) or e
    over = kernel.over_libraries(at, version)
    if at is not e:
        over = f"On the {at.card}, {over[:1].lower()}{over[1:]}" * bool(over)
    return [
        served(version),
        f"{over}{peers.untimed(at, version)}" if over else "",
        *kernel.headline(e, version),
        kernel.needs(e, version) if version.beyond else "",
        *told(version),
    ]


def neighbours(version: Version) -> str:
    """Links to all versions, and to the page before and the page behind that of a version."""
    order = [each.id for family in FAMILIES for each in versions.in_order(family) if has_page(each)]
    at = order.index(version.id) if version.id in order else -1
    before, behind = (order[i] if 0 <= at and 0 <= i < len(order) else "" for i in (at - 1, at + 1))
    parts = [f"← [{before}]({before}.md)" * bool(before), CHAPTER, f"[{behind}]({behind}.md) →" * bool(behind)]
    return " · ".join(filter(None, parts))


def measured(e: Evidence, version: Version, shown: int = 2) -> str:
    """The first tables of times, and folded those of other studies, behind first ones in one fold; of another card
    where this one has none."""
    at = kernel.card_of(e, version)
    none = f"No time was measured on the {e.card}."
    if not at:
        return none
    tables = [(title, html(table)) for title, table in versions.times(at, version)]
    titled = [f"**{title}**\n\n{table}" for title, table in tables]
    rest = len(tables) - shown if shown else 0
    return joined([
        f"{none} These are of the {at.card}." if at is not e else "",
        *titled[:shown],
        folded(f"{rest} more tables, of other studies", joined(titled[shown:])) if rest > 1 else "",
        *(folded(*each) for each in tables[shown:] if rest <= 1),
    ])


def legend(e: Evidence) -> str:
    """The meaning of the columns of all tables of times: once a page."""
    return f"<p class='evidence-caption'>{versions.LEGEND.format(covers=e.covers())}</p>"


def checked(e: Evidence, version: Version) -> str:
    """Why results are not right, and folded, why problems are not taken."""
    wrong, refused = reasons.reasons(e, version)
    return joined([listed(wrong), folded("Why it does not take other problems", listed(refused))])


def _words(version: Version) -> str:
    """The paragraphs of its file, where that is of one version, and of its planner, without titles and source."""
    alone = len({each.variant_of or each.id for each in VERSIONS.values() if each.module == version.module}) == 1
    module = sys.modules.get(version.module) if alone else None
    documents = (inspect.getdoc(each) for each in (module, version.plan) if each)
    paragraphs = [text for document in documents for text in (document or "").split("\n\n")[1:]]
    told = (" ".join(text.split()) for text in paragraphs if not text.startswith(("Source:", "Raises:", "    ")))
    return "\n".join("<p>" + re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text)) + "</p>" for text in told)


def changes(version: Version) -> str:
    """The change from its parent, in words and, where that is a change and not another kernel, as a diff."""
    if not version.parent:
        return _words(version)
    old, new = (sources.kernel_text(each).splitlines() for each in (version.parent, version.id))
    if difflib.SequenceMatcher(None, old, new, autojunk=False).ratio() < ALIKE:
        return joined([_words(version), f"Most lines differ from those of {link(version.parent)}: no diff is shown."])
    diff = sources.diff_text(version.id).rstrip()
    return joined([_words(version), f"```diff\n{diff}\n```" if diff else ""])


def compiled(e: Evidence, version: Version) -> str:
    """Reports of the compiler, and what the letters in the names of the kernels mean."""
    table = html(counts.resources(e, version))
    text = re.sub("<[^>]+>", "", table)
    letters = "; ".join(f"<code>{name}</code>: {means}" for name, means in NAMES.items() if f" {name}" in text)
    return joined([table, f"<p class='evidence-caption'>Letters in names. {letters}.</p>" if letters else ""])


def others(e: Evidence, page: str) -> str:
    """Sections of the versions that have no page of their own but stand on one."""
    found = [each for family in FAMILIES for each in versions.in_order(family)]
    told = []
    for each in found:
        if not has_page(each) and page_of(each.id) == page:
            parts = [about(e, each), measured(e, each, 1), checked(e, each), folded("What it changes", changes(each))]
            told.append(joined([f"<div id='{each.id}'></div>", f"### {each.id}", *parts]))
    return joined(told)


def page(e: Evidence, version: Version) -> str:
    """The page of a version, as MyST Markdown."""
    named, text = judge.named(e.record), sources.kernel_text(version.id).rstrip()
    claims = [claim for claim in judge.claims() if version.id in named[claim.id]]
    at = kernel.card_of(e, version) if version.beyond else None
    glance = html(kernel.glance(at, version)) if at else ""
    parts = [
        f"# {version.id}\n\n{neighbours(version)}\n\n{about(e, version)}",
        section("At a glance", glance),
        section("Measured", joined([legend(e), measured(e, version, 0 if glance else 2)])),
        section("Checked", checked(e, version)),
        section("Claims that name it", verdicts(e, claims)),
        section("Declared hazards", counts.hazards(e, version)),
        section("What the compiler reports", compiled(e, version)),
        section("Counted", counts.counts(e, version)),
        section("Hardware counters", counts.counters(e, version)),
        section("What it changes" if version.parent else "What it is", changes(version)),
        section("Source", f"```{'cuda' if '__global__' in text else 'python'}\n{text}\n```"),
        section("Ablations, builds and controls", others(e, version.id)),
    ]
    return HEAD + joined(parts) + "\n"


def of_peers(e: Evidence) -> str:
    """The page of what a user would pick instead: the libraries, and a table of times a study."""
    what = (
        "A row is a shape and a column a library: µs of a call on the GPU alone, whole card, inputs in L2 if they fit. "
        "The first column is the kernel that the op runs for the shape, named above its rows; of an embedding without "
        "a call of its own, the fastest kernel with a right result. Bold is the fastest library with a right result. "
        "Level is within 3 %, or an interval that reaches 1. <i>One graph</i>: <code>torch.compile</code> makes RoPE "
        "and attention one graph. <i>PyTorch SDPA</i> chooses one of its kernels by itself; the efficient one has no "
        "column where it is chosen."
    )
    tables = [(title, joined([told, *map(html, several)])) for title, told, several in peers.matrices(e)]
    return HEAD + joined([
        "# Peers",
        f"What a user would pick instead of these kernels. {CHAPTER} · Code: {citing.to_file('kernels/peers')}",
        html(peers.libraries(e)),
        peers.not_here(e),
        folded("Their names in the data", peers.names()),
        section("Outcomes", peers.outcomes(e)),
        section("Times", what if tables else f"No time was measured on the {e.card}."),
        *(f"**{title}**\n\n{text}" for title, text in tables[:2]),
        *(folded(*each) for each in tables[2:]),
    ]) + "\n"


def write(e: Evidence, folder: Path) -> None:
    """Make the pages in a folder of their own, one of them of what a user would pick instead."""
    texts = {version.id: page(e, version) for version in VERSIONS.values() if has_page(version)}
    texts[PEERS] = of_peers(e)
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
