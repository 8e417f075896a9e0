"""Cards side by side: what the documents published, what each card measured, and how each compares with the findings.

    python -m analysis compare published nvidia-h200

prints the tables and writes them as CSV. `published` is the write-up's own card. Without names all cards are compared.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape, unescape
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import pandas as pd
from markdown_it import MarkdownIt

from kernels import VERSIONS, Problem

from .. import findings
from ..claims import judge
from ..claims.rule import UNDECIDED, stands
from ..evidence import Estimate, Evidence
from ..evidence.known import FAILED, INFEASIBLE, NOT_MEASURED, OK, UNSUPPORTED, WRONG, Known
from ..evidence.origin import Source, measured_on, published_on
from ..measure.studies import SOURCE_TIMER, study
from ..record import published
from ..record.files import ROOT, DataError, card_name, gpu_folder, known_gpus, problem_columns, read_json
from ..record.published import Published
from ..tables.claims import in_ledger
from ..tables.table import Table, hdim, lines, link, mark, ratio, small, status, verdict_mark
from .findings import badge
from .front import FIVE

OUT = ROOT / "_build" / "compare"
WIDEST = 60  # characters of a column in the terminal
PUBLISHED = "published"
STUDIES = ("log", "fp16")  # those that hold every shape with a published speedup
TIMERS = {"device": "device_warm", "as-timed": SOURCE_TIMER}  # kernels alone; as the authors timed
ORDER = (FAILED, UNSUPPORTED, INFEASIBLE, NOT_MEASURED, WRONG, OK)  # of two versions, the first decides
NO_INTERVAL = {"low": math.nan, "high": math.nan}
RUN = ("run", "commit", "driver", "cuda", "numba_cuda", "torch", "sm_mhz_max", "power_limit_w", "throttle")


@dataclass(frozen=True)
class Card:
    """A column: a card with its evidence, or what is published, which has none."""

    slug: str
    label: str
    e: Evidence | None = None

    def name(self, family: str) -> str:
        """The GPU: of what is published, the one of that family's documents."""
        return self.e.card if self.e else published.card(family)


def chosen(names: Sequence[str] = (), first: str = "") -> list[Card]:
    """The columns of these names, in their order; without names all there are: published, `first`, other cards.

    Raises: DataError where a name is unknown or given twice, where fewer than two are left, or for a damaged file.
    """
    known = [PUBLISHED, *sorted(known_gpus(), key=lambda slug: (slug != first, slug))]
    names = list(names) or known
    for name in names:
        if name not in known:
            raise DataError(f"no card is called {name!r}; known: {', '.join(known)}")
        if names.count(name) > 1:
            raise DataError(f"{name!r} is named {names.count(name)} times; a card is compared with others")
    if len(names) < 2:
        raise DataError(f"two or more are compared; given: {', '.join(names)}; known: {', '.join(known)}")
    called = {slug: card_name(slug, read_json(gpu_folder(slug) / "gpu.json")) for slug in names if slug != PUBLISHED}
    return [
        Card(slug, called[slug].removeprefix("NVIDIA ") if [*called.values()].count(called[slug]) == 1 else slug,
             Evidence.load(slug))
        if slug in called
        else Card(PUBLISHED, PUBLISHED)
        for slug in names
    ]  # fmt: skip


def source_of(cards: Sequence[Card]) -> Source:
    """Where the numbers of these cards are from, for a figure or table."""

    def one(card: Card) -> Source:
        if card.e is None:
            return published_on("rope")
        runs = [found.run for name in STUDIES if (found := card.e.study(name))]
        return measured_on(card.e.card, runs) if runs else Source()

    return sum(map(one, cards), Source())


# ---------------------------------------------------------------- speedups


class Stated(NamedTuple):
    """A speedup of the documents."""

    version: str
    baseline: str
    problem: Problem
    published: Published


@functools.cache
def stated() -> tuple[Stated, ...]:
    """In the order of the log: over each version's baseline, those that documents name and those of the front page."""
    rows = published.load().query("quantity == 'speedup'")
    named = {pair for pair in zip(rows["version"], rows["baseline"]) if set(pair) <= set(VERSIONS)}
    named |= {(version, baseline) for _, version, baseline in FIVE}
    # The documents do not say whether half-precision attention is causal; the first version of it is not.
    problems = [problem for name in STUDIES for problem in study(name).problems if not problem.causal]
    told = {*published.load()["version"]}
    found = []
    for version in (version for version in VERSIONS.values() if version.id in told):
        others = sorted(baseline for name, baseline in named if name == version.id and baseline != version.baseline)
        for baseline in filter(None, [version.baseline, *others]):
            for problem in problems:
                if problem.family == version.family and (value := published.speedup(version.id, baseline, problem)):
                    found.append(Stated(version.id, baseline, problem, value))
    return tuple(found)


def measured(e: Evidence, one: Stated, problem: Problem, home: str, timer: str) -> dict[str, Any]:
    """What a study of a card says of the two versions of a published speedup, on its own problem or on another.

    `speedup`, `low` and `high` where both were timed; else `status`, a word of `Known`, and `reason` say why not.
    """
    found, rows = e.study(home), e.study(home).timings
    pair = {name: found.known(name, problem) for name in (one.version, one.baseline)}
    version = min(pair, key=lambda name: ORDER.index(pair[name].word))
    word, reason = pair[version]
    gain = e.speedup(one.version, over=one.baseline, study=home, timer=timer, problem=problem)[problem]
    if not gain and pair[version].ran:  # whether timing it failed, or is not done
        failed = rows[rows["version"].isin(pair) & (rows["problem"] == problem) & (rows["status"] == "error")]
        failed = failed[failed["timer"].isna() | (failed["timer"] == timer)]
        word, reason = (FAILED, str(failed["reason"].iloc[0])) if len(failed) else (NOT_MEASURED, "")
    return {
        "status": word,
        "reason": f"{version}: {reason}" if reason else "",
        "speedup": gain.value,
        "low": gain.low,
        "high": gain.high,
        "stale": int(any(found.stale(name, problem) for name in pair)),
        "against_published": stands(one.published.value, gain) if gain else "",
    }


def speedups(cards: Sequence[Card], timer: str) -> pd.DataFrame:
    """A row for each published speedup and card, in these orders; what is not known is missing."""
    rows: list[dict[str, Any]] = []
    for one in stated():
        home = "fp16" if one.problem.family == "fp16" else "log"
        for card in cards:
            said = {"status": PUBLISHED, "reason": "", "speedup": one.published.value, **NO_INTERVAL, "stale": 0}
            about = measured(card.e, one, one.problem, home, timer) if card.e else said
            names = {"card": card.slug, "label": card.label, "gpu": card.name(one.problem.family)}
            shape = {"version": one.version, "baseline": one.baseline, **problem_columns(one.problem)}
            rows.append({**shape, **names, "timer": timer if card.e else PUBLISHED, **about})
    return pd.DataFrame(rows).fillna({"against_published": ""})


def speedup_table(frame: pd.DataFrame, compact: bool = False) -> Table:
    """`speedups` with a row for each version, baseline and head dim; `compact` leaves out how they compare."""
    stale = set(frame.loc[frame["stale"] == 1, "card"])
    labels = dict(zip(frame["card"], frame["label"]))
    header = [escape(label) + (f" {mark('stale')}" if card in stale else "") for card, label in labels.items()]
    rows = []
    for _, cells in frame.groupby(["version", "baseline", "hdim", "rotary_dim"], sort=False):
        found = [*cells.itertuples()]
        first = lines(link(found[0].version), small(f"over {link(found[0].baseline)}"))
        rows.append((first, hdim(found[0]), *(_cell(cell, compact) for cell in found)))
    return Table(("version", "head dim", *header), rows, header)


def _cell(cell: Any, compact: bool) -> str:
    return lines(
        "" if math.isnan(cell.speedup) else ratio(Estimate(cell.speedup, cell.low, cell.high)),
        "" if cell.status in (PUBLISHED, OK) else status(Known(cell.status, cell.reason)),
        mark("stale") if cell.stale else "",
        "" if compact or not cell.against_published else small(cell.against_published),
    )


# ---------------------------------------------------------------- machines, claims, findings


def machines(cards: Sequence[Card]) -> Table:
    """The GPU and the software and clocks of its runs of the documents' shapes."""

    def about(card: Card) -> dict[str, str]:
        if card.e is None:
            return {"GPU": "; half precision: ".join(dict.fromkeys(map(card.name, ("rope", "fp16"))))}
        runs = [found.run for name in STUDIES if (found := card.e.study(name))]
        told = {name: "; ".join(dict.fromkeys(_text(run.get(name)) for run in runs)) for name in RUN}
        stale = {name for study in STUDIES for name in card.e.study(study).stale_versions()}
        gpu = {"GPU": card.e.card, "SMs": _text(card.e.gpu.get("sms"))}
        return {**gpu, **told, "versions whose code has changed": str(len(stale))}

    columns = [about(card) for card in cards]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [(escape(name), *(escape(column.get(name, "")) for column in columns)) for name in names]
    return Table(("what", *(escape(card.label) for card in cards)), rows)


def _text(value: Any) -> str:
    """A value of a card or a run; nothing where the machine does not say."""
    if value is None or value != value:
        return ""
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def verdicts(cards: Sequence[Card]) -> pd.DataFrame:
    """The verdict of each claim on each measured card, a row a claim and a column a card. Raises: DataError."""
    given = {
        card.slug: {str(row["claim_id"]): str(row["verdict"]) for row in judge.verdicts_of(card.slug)}
        for card in cards
        if card.e and card.e.study("log")
    }
    names = [claim.id for claim in judge.claims()]
    found = {slug: {name: mine.get(name, UNDECIDED) for name in names} for slug, mine in given.items()}
    return pd.DataFrame(found).rename_axis("claim_id")


def differing(frame: pd.DataFrame) -> Table:
    """The claims whose verdicts differ from card to card."""
    text = {claim.id: claim.claim for claim in judge.claims()}
    chosen = frame[frame.nunique(axis=1) > 1]
    rows = [(in_ledger(name), escape(text[name]), *map(verdict_mark, cells)) for name, *cells in chosen.itertuples()]
    return Table(("claim", "what is claimed", *map(escape, frame.columns)), rows)


def finding_rows(cards: Sequence[Card]) -> pd.DataFrame:
    """A row for each finding and measured card: what was compared there, and how that compares with the sentence."""
    rows = []
    for one in findings.load().values():
        for card in cards:
            if card.e is None:
                continue
            here = one.on(card.e)
            compared = "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in here.numbers.items())
            about = {"finding": one.id, "card": card.slug, "label": card.label, "badge": here.badge}
            rows.append({**about, "compared": compared, "sentence": one.home.text})
    return pd.DataFrame(rows)


def finding_table(frame: pd.DataFrame) -> Table:
    """Each finding with the numbers of each card, and whether its comparisons hold there."""
    inline = MarkdownIt().renderInline
    rows = [
        (
            f"<span class='reference-card'>{inline(str(sentence).removeprefix('> '))}</span>",
            *(lines(badge(row.badge), small(escape(row.compared))) for row in mine.itertuples()),
        )
        for (_, sentence), mine in frame.groupby(["finding", "sentence"], sort=False)
    ]
    return Table(("finding", *map(escape, dict.fromkeys(frame["label"]))), rows)


def finding_counts(frame: pd.DataFrame) -> Table:
    """How many findings hold on each card, differ, and are not measured."""
    given, labels = frame.groupby(["card", "badge"]).size(), dict(zip(frame["card"], frame["label"]))
    rows = [(badge(word), *(str(given.get((card, word), 0)) for card in labels)) for word in findings.BADGES]
    return Table(("findings", *map(escape, labels.values())), rows)


# ---------------------------------------------------------------- the command


def as_text(table: Table) -> str:
    """A table for the terminal; what the row before begins with is not repeated, long cells are wrapped."""
    plain = table.plain()
    rows = [[wrap(unescape(cell), WIDEST) or [""] for cell in row] for row in (plain.header, *plain.rows)]
    widths = [max(len(line) for row in rows for line in row[column]) for column in range(len(plain.header))]
    printed: list[str] = []
    above: list[str] = []
    for row in rows:
        cells = [[""], *row[1:]] if row[0] == above else row
        above = row[0]
        for parts in zip_longest(*cells, fillvalue=""):
            printed.append("  ".join(part.ljust(width) for part, width in zip(parts, widths)).rstrip())
    return "\n".join(printed)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis compare", description=__doc__.splitlines()[0])
    parser.add_argument("cards", nargs="*", metavar="CARD", help=f"{PUBLISHED} or a folder of measurements; else all")
    parser.add_argument("--timer", default="device", choices=TIMERS, help="kernels alone, or the authors' way")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the CSV files, by default _build/compare")
    options = parser.parse_args(arguments)
    try:
        cards = chosen(options.cards)
        ratios, judged, told = speedups(cards, TIMERS[options.timer]), verdicts(cards), finding_rows(cards)
    except DataError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    parts: dict[str, Callable[[], Table]] = {
        "Cards": lambda: machines(cards),
        f"Speedup over the baseline by head dim ({TIMERS[options.timer]}); above 1 is faster":
            lambda: speedup_table(ratios, compact=True),
        "Claims whose verdicts differ": lambda: differing(judged),
        "Findings": lambda: finding_table(told),
    }  # fmt: skip
    print("\n\n".join(f"{title}\n\n{as_text(make())}" for title, make in parts.items()))
    options.out.mkdir(parents=True, exist_ok=True)
    for name, frame in {"speedups": ratios, "claims": judged.reset_index(), "findings": told}.items():
        frame.to_csv(options.out / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    print(f"\n[compare] speedups.csv, claims.csv and findings.csv in {options.out}")
    return 0
