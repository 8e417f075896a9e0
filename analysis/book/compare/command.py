"""Compare cards: `python -m analysis compare published nvidia-h200` prints tables and writes them as CSV.

Every published speedup over its baseline, the claims whose verdicts differ and the findings, a column for each card.
`published` is the write-up's own card. Without names all cards are compared that there are.
"""

from __future__ import annotations

import argparse
import sys
from html import unescape
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap

import pandas as pd

from ...records.files import ROOT, DataError
from ...tables.table import Table
from . import carry, speedups, tables
from .cards import PUBLISHED, about, chosen

OUT = ROOT / "_build" / "compare"
WIDEST = 60  # characters of a column


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
    parser.add_argument(
        "--timer", default="device", choices=speedups.TIMERS, help="device: kernels alone; as-timed: the authors' way"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the CSV files, by default _build/compare")
    options = parser.parse_args(arguments)
    timer = speedups.TIMERS[options.timer]
    try:
        cards = chosen(options.cards)
        ratios, verdicts, findings = speedups.frame(cards, timer), carry.verdicts(cards), carry.held(cards)
    except DataError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    parts = [
        as_text(tables.machines(cards)),
        f"Speedup over the baseline by head dim ({timer}); above 1 is faster",
        as_text(tables.speedups(ratios, compact=True)),
        "Claims by verdict",
        as_text(tables.verdict_counts(verdicts)),
        *_agreement(verdicts),
        "Findings",
        as_text(tables.findings(findings)),
    ]
    print("\n\n".join(parts))
    options.out.mkdir(parents=True, exist_ok=True)
    machines = pd.DataFrame([{"card": card.slug, **about(card)} for card in cards])
    for name, frame in (("cards", machines), ("speedups", ratios), ("claims", verdicts), ("findings", findings)):
        frame.to_csv(options.out / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    print(f"\n[compare] cards.csv, speedups.csv, claims.csv and findings.csv in {options.out}")
    return 0


def _agreement(verdicts: pd.DataFrame) -> list[str]:
    """On how many claims several cards agree, and those on which they do not; nothing of one card."""
    counts = carry.counts(verdicts)
    if not counts:
        return []
    differ = tables.claims_that_differ(verdicts)
    said = f"Claims by agreement of the cards: {', '.join(f'{count} {words}' for words, count in counts.items())}"
    return [said, as_text(differ)] if differ.rows else [said]
