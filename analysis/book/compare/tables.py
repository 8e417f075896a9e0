"""A comparison as tables: a column for each card, in the order in which they were named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
from markdown_it import MarkdownIt

from ...claims.rule import VERDICTS
from ...measure.studies import MAIN
from ...models import fusion, targets
from ...records.files import problem_of
from ...records.interval import Ratio
from ...records.known import NOT_MEASURED, OK, Known
from ...records.text import NOTHING
from ...tables.claims import in_ledger
from ...tables.table import Table, hdim, lines, link, mark, ratio, small, status, verdict_mark
from ..chapters import targets as chapter
from ..findings import DIFFERS, HOLDS, PROBABLY
from ..notebook import source_of
from ..origin import Source
from . import carry
from .cards import Card, about
from .speedups import STATED

HELD = {HOLDS: "ok", PROBABLY: PROBABLY, DIFFERS: "wrong", NOT_MEASURED: "unsupported"}


def machines(cards: Sequence[Card]) -> Table:
    """The GPU, the software and the clocks of each card."""
    columns = [about(card) for card in cards]
    rows = [(words, *(escape(column[words]) or NOTHING for column in columns)) for words in columns[0]]
    return Table(("what", *(escape(card.label) for card in cards)), rows)


def speedups(frame: pd.DataFrame, compact: bool = False) -> Table:
    """`speedups.frame` with a row for each version, baseline and head dim; `compact` leaves out how they compare."""
    stale = set(frame.loc[frame["stale"] == 1, "card"])
    labels = dict(zip(frame["card"], frame["label"]))
    header = [escape(label) + (f" {mark('stale')}" if card in stale else "") for card, label in labels.items()]
    rows = []
    for _, cells in frame.groupby(["version", "baseline", "hdim", "rotary_dim"], sort=False):
        found = cells.to_dict("records")
        first = lines(link(found[0]["version"]), small(f"over {link(found[0]['baseline'])}"))
        rows.append((first, hdim(problem_of(found[0])), *(_speedup(cell, compact) for cell in found)))
    return Table(("version", "head dim", *header), rows, header)


def _speedup(cell: Mapping[str, Any], compact: bool) -> str:
    parts = []
    if cell["speedup"] == cell["speedup"]:
        parts.append(ratio(Ratio(cell["speedup"], cell["low"], cell["high"])))
    if cell["status"] not in (STATED, OK):
        parts.append(status(Known(cell["status"], cell["reason"])))
    if cell["stale"]:
        parts.append(mark("stale"))
    if not compact:
        parts.append(small(cell["against_published"]) if cell["against_published"] else "")
    return lines(*parts)


def v8(cards: Sequence[Card]) -> Table:
    """V8 at the main shape on each measured card: its time, and its speedups over others there."""
    measured = {card.label: targets.read(card.slug) for card in cards if not card.is_published}
    bases = (targets.V7, fusion.HYBRID, fusion.SEPARATE)
    over = {f"over {link(base)}": [base] for base in bases} | {"over the fastest way of PyTorch or Triton": []}
    rows = [(f"{link(targets.V8)}, time", *map(chapter.main_time, measured.values()))]
    for words, base in over.items():
        gains = (chapter.speedups(each, *base, problems=(MAIN,)) for each in measured.values())
        rows.append((words, *(f"{each}" for each in gains)))
    labels = tuple(map(escape, measured))
    source = sum(map(source_of, measured.values()), Source())
    return Table((escape(targets.label(MAIN)), *labels), rows, labels).of(source)


def verdict_counts(frame: pd.DataFrame) -> Table:
    """How many claims have which verdict on each measured card, of the verdicts that occur."""
    occur = set(frame["verdict"])
    return _counts(frame, "verdict", {each: verdict_mark(each) for each in VERDICTS if each in occur})


def _counts(frame: pd.DataFrame, column: str, marks: Mapping[str, str]) -> Table:
    """How often each of the marked values stands in a column, by card."""
    labels = dict(zip(frame["card"], frame["label"]))
    given = frame.groupby(["card", column]).size()
    rows = [(shown, *(str(given.get((card, value), 0)) for card in labels)) for value, shown in marks.items()]
    header = [escape(label) for label in labels.values()]
    return Table((column, *header), rows, header)


def claims_that_differ(frame: pd.DataFrame) -> Table:
    """The claims that have another verdict on another card."""
    chosen = frame[frame["carries"] == carry.DIFFERS]
    rows = [
        (in_ledger(str(claim)), escape(text), *map(verdict_mark, cells["verdict"]))
        for (claim, text), cells in chosen.groupby(["claim_id", "claim"], sort=False)
    ]
    return Table(("claim", "what is claimed", *map(escape, dict.fromkeys(frame["label"]))), rows)


def reference_card(text: str) -> str:
    """What is about the reference record, on whichever card's page it stands."""
    return f"<span class='reference-card'>{text}</span>"


def outcome_counts(frame: pd.DataFrame) -> Table:
    """How many findings come out how on each measured card."""
    return _counts(frame, "outcome", {outcome: mark(outcome, style) for outcome, style in HELD.items()})


def findings(frame: pd.DataFrame) -> Table:
    """How each finding comes out on each measured card, its sentence on the reference record, and where it differs."""
    inline = MarkdownIt().renderInline
    rows = [
        (
            escape(str(name)),
            *(mark(outcome, HELD[outcome]) for outcome in cells["outcome"]),
            lines(
                reference_card(inline(str(sentence))),
                *(small(inline(text)) for text in cells.loc[cells["outcome"] == DIFFERS, "text"]),
            ),
        )
        for (name, sentence), cells in frame.groupby(["finding", "reference"], sort=False)
    ]
    return Table(("finding", *map(escape, dict.fromkeys(frame["label"])), "on the reference card"), rows)
