"""Cards side by side: the speedups, claims and findings that mean something else on one of them.

No verdict compares times of two cards.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import pandas as pd
from markdown_it import MarkdownIt

from kernels import VERSIONS

from .. import findings
from ..claims import judge
from ..claims.rule import BETWEEN, FALLS, STANDS, UNDECIDED
from ..evidence import DECIDED, Estimate, Evidence
from ..figures.front import ROWS
from ..record import published
from ..record.files import known_gpus
from ..record.text import span
from ..studies import SLICES
from ..tables.claims import LEDGER
from ..tables.environment import named, source_of
from ..tables.table import Table, lines, link, ratio, small, to, verdict_mark
from .notebook import badge

COMPARED = {(version, baseline): words for words, version, baseline, _ in reversed(ROWS)}  # the first of a pair
LOADS = {"their SMs": SLICES, "their shapes": "", "full card": "filled"}  # with the study of each
SIDES = {1: "faster", 0: "tie", -1: "slower"}
NOT_TESTED = "not tested"


class Brief(NamedTuple):
    """A finding that differs in short: what it compares, a card's numbers in words, and what may explain the change."""

    what: str
    numbers: str
    why: str = NOT_TESTED


DRAM = "The H200 reads DRAM faster (the table below), and reading may hide less of the rotation. Not tested."
IN_SHORT = {  # by finding
    "answer-stands": Brief(
        "Of the claims of the write-up itself, how many are right",
        "{right} of {claims} right, {partly} in direction or in part", "another verdict: the table of claims",
    ),
    "decode-free": Brief(
        "What rotating adds to a decode step on raw keys, float16", "{half} with {keys} keys, {most} at most", DRAM
    ),
    "decode-rotated": Brief(
        "The speed of cuDNN on rotated keys over ours on raw ones, decode, float16", "{here} with {most} keys", DRAM
    ),
    "fuse-half": Brief(
        "Prompts in float16: cuDNN over ours without RoPE, and ours over libraries with it",
        "cuDNN is faster at {lost} of {all}; with RoPE ours is at least {least} as fast",
    ),
}
SIDE_OF_CLAIM = {word: side for side, words in enumerate((STANDS, BETWEEN, FALLS)) for word in words}


def chosen(first: str = "") -> list[Evidence]:
    """All cards, `first` before the others."""
    return [Evidence.load(slug) for slug in sorted(known_gpus(), key=lambda slug: (slug != first, slug))]


def pairs() -> list[tuple[str, str]]:
    """The versions that the documents tell of, over their baselines and over others that a speedup is published for."""
    told = published.load()
    stated = told[told["quantity"] == "speedup"][["version", "baseline"]].itertuples(index=False, name=None)
    found = {pair for pair in stated if set(pair) <= set(VERSIONS)}
    found |= {(each.id, each.baseline) for each in VERSIONS.values() if each.baseline and each.id in {*told["version"]}}
    found |= {*COMPARED}
    order = list(VERSIONS)
    return sorted(found, key=lambda pair: [order.index(name) for name in pair])


def speedups(cards: Sequence[Evidence]) -> pd.DataFrame:
    """A row for each pair, load, head dim and card that was timed with today's code, on the GPU alone."""
    rows = [
        (version, baseline, load, hdim, e.slug, gain.value, gain.low, gain.high, SIDES[gain.side])
        for version, baseline in pairs()
        for load, study in LOADS.items()
        for e in cards
        for hdim, gain in e.speedup(version, baseline, study, "device_warm").items()
        if gain and not gain.about.stale
    ]
    return pd.DataFrame(rows, columns=["version", "baseline", "load", "hdim", "card", "speedup", "low", "high", "side"])


def main_table(frame: pd.DataFrame, cards: Sequence[Evidence]) -> Table:
    """The comparisons of the story on each card, at each load."""
    rows = []
    for (version, baseline, load), mine in frame.groupby(["version", "baseline", "load"], sort=False):
        if (version, baseline) in COMPARED:
            given = (span(mine[mine["card"] == e.slug]["speedup"], "×", 2) for e in cards)
            rows.append((COMPARED[version, baseline], load, *given))
    names = named(cards)
    caption = "Speedup on the GPU alone, least to largest over the documents' head dims; above 1 is faster."
    source, title = source_of(cards), "The story's speedups by card"
    return Table(("compared", "load", *names), rows, names, caption, "speedups-by-card", source, title)


def result(gains: pd.DataFrame, told: pd.DataFrame, given: pd.DataFrame, cards: Sequence[Evidence]) -> str:
    """How many of all speedups, claims and findings mean something else on one of the cards."""
    changed = (len(table.rows) for table in (
        speedup_table(gains, cards), verdict_table(given, cards), finding_table(told, cards)
    ))  # fmt: skip
    of = (_compared(gains), len(given), told["finding"].nunique())
    counts = [f"{n} of {all} {what}" for n, all, what in zip(changed, of, ("speedups", "claims", "findings"))]
    return f"**{', '.join(counts[:-1])} and {counts[-1]} change between {' and '.join(named(cards))}.**"


def _compared(frame: pd.DataFrame) -> int:
    """The number of speedups that two cards or more have."""
    return int((frame.groupby(["version", "baseline", "load", "hdim"])["card"].nunique() > 1).sum())


def speedup_table(frame: pd.DataFrame, cards: Sequence[Evidence]) -> Table:
    """The speedups that are on another side of 1 on one of the cards, their intervals apart."""
    rows = []
    for (version, baseline, load, hdim), mine in frame.groupby(["version", "baseline", "load", "hdim"], sort=False):
        by_card = {row.card: row for row in mine.itertuples()}
        apart = mine["low"].max() > mine["high"].min()
        if apart and mine["side"].nunique() > 1:
            first = lines(link(version), small(f"over {link(baseline)}"))
            cells = (by_card.get(e.slug) for e in cards)
            told = (
                lines(ratio(Estimate(one.speedup, one.low, one.high)), small(one.side)) if one else "" for one in cells
            )
            rows.append((first, str(hdim), load, *told))
    compared = _compared(frame)
    caption = f"With another meaning on one card: {len(rows)} of {compared} speedups that two cards or more have."
    names, title = named(cards), "Speedups on another side of 1"
    header = ("version", "head dim", "load", *names)
    return Table(header, rows, names, caption, "sides", source_of(cards), title)


def verdicts(cards: Sequence[Evidence]) -> pd.DataFrame:
    """The verdict of each claim on each card, a row a claim and a column a card."""
    given = {
        e.slug: {name: tests[0]["verdict"] for name, tests in judge.recorded(e.record).items()}
        for e in cards
        if e.study("log")
    }
    names = pd.Index([claim.id for claim in judge.claims()], name="claim_id")
    return pd.DataFrame(given, index=names)


def verdict_table(frame: pd.DataFrame, cards: Sequence[Evidence]) -> Table:
    """The claims that stand on one card and fall, or stand in part, on another; an open verdict is no other one."""
    text = {claim.id: claim.claim for claim in judge.claims()}
    rows = []
    for name, *words in frame.itertuples():
        if len({SIDE_OF_CLAIM[word] for word in words if word != UNDECIDED}) > 1:
            rows.append((to(name, LEDGER), escape(text[name]), *map(verdict_mark, words)))
    caption = f"{len(rows)} of {len(frame)} claims."
    names = (name for name, e in zip(named(cards), cards) if e.slug in frame)
    header, title = ("claim", "what is claimed", *names), "Claims whose verdicts differ in kind"
    return Table(header, rows, caption=caption, id="verdicts-by-card", source=DECIDED, title=title)


def finding_rows(cards: Sequence[Evidence]) -> pd.DataFrame:
    """A row for each finding and card: how it compares there, and its numbers."""
    rows = []
    for one in findings.load().values():
        for e in cards:
            here = one.on(e)
            rows.append((one.id, e.slug, here.badge, here.numbers))
    return pd.DataFrame(rows, columns=["finding", "card", "badge", "numbers"])


def finding_counts(frame: pd.DataFrame, cards: Sequence[Evidence]) -> Table:
    given = frame.groupby(["card", "badge"]).size()
    counts = {word: [given.get((e.slug, word), 0) for e in cards] for word in findings.BADGES}
    rows = [(badge(word), *map(str, each)) for word, each in counts.items() if any(each)]
    names, none = named(cards), frame[frame["badge"] == findings.NOT_MEASURED].groupby("card")["finding"].agg(", ".join)
    told = (f"Not measured on the {e.card}: {none[e.slug]}." for e in cards if e.slug in none)
    return Table(("findings", *names), rows, names, " ".join(told), "finding-counts", DECIDED)


def finding_table(frame: pd.DataFrame, cards: Sequence[Evidence]) -> Table:
    """The findings that a card contradicts: in short words, the numbers of each card, and what may explain it."""
    rows = []
    for name, mine in frame.groupby("finding", sort=False):
        if findings.DIFFERS in set(mine["badge"]):
            brief = IN_SHORT.get(str(name)) or Brief(findings.load()[str(name)].home.text.removeprefix("> "), "")
            cells = (
                lines(_numbers(brief, row.badge, row.numbers), small(badge(row.badge))) for row in mine.itertuples()
            )
            what, why = (f"<span class='reference-card'>{words}</span>" for words in (
                MarkdownIt().renderInline(brief.what), brief.why
            ))  # fmt: skip
            rows.append((what, *cells, why))
    header, title = ("finding", *named(cards), "what may explain it"), "Findings that differ"
    return Table(header, rows, id="findings-by-card", source=DECIDED, title=title)


def _numbers(brief: Brief, word: str, given: Mapping[str, str]) -> str:
    """The numbers of a card in words; without words for them, by their names."""
    if word == findings.NOT_MEASURED:
        return ""
    plain = "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in given.items())
    return escape(brief.numbers.format(**given) if brief.numbers else plain)
