"""Made-up cards: folders of measurements as the commands would write them on cards that nobody had at hand.

    write("8.9", folder)                                everything
    write("7.5", folder, studies=("log",), leave_out=("counters", "shapes", "sanitizers", "op"))

What a card refuses is asked of the versions themselves and of the compiler; rows are made by the functions that make
measured ones. Only times, errors and counters are made up: a model of the card, times a factor drawn from a hash, so
that they are the same every time. `gpu.json` says `"made_up": true`. They never lie under data/measured/.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.measure.studies import STUDIES
from analysis.records.files import MEASURED, ROOT, write_table
from analysis.records.schema import SCHEMAS
from analysis.verdicts import claims

from . import another, rows
from .card import CARDS, Card

ANOTHER = "another H200"
PARTS = ("counters", "shapes", "sanitizers", "op", "verdicts")  # what may be left out


@dataclass(frozen=True)
class Kind:
    """One folder of measurements: the card, what was measured on it, what was not, and what went wrong."""

    card: str
    studies: tuple[str, ...] = tuple(STUDIES)
    leave_out: tuple[str, ...] = ("verdicts",)
    errors: bool = False
    gaps: bool = False

    def write(self, folder: Path) -> Path:
        return write(self.card, folder, self.studies, self.leave_out, self.errors, self.gaps)


ALONE = ("counters", "shapes", "sanitizers", "op", "verdicts")
KINDS = {
    "7.5 log": Kind("7.5", ("log",), ALONE),
    "8.0 errors": Kind("8.0", leave_out=("counters", "verdicts"), errors=True),
    "8.9 gaps": Kind("8.9", leave_out=("shapes", "op", "verdicts"), gaps=True),
    "12.0": Kind("12.0", leave_out=("sanitizers", "verdicts")),
    ANOTHER: Kind(ANOTHER),
}


def write(
    card: str,
    folder: Path,
    studies: Sequence[str] = tuple(STUDIES),
    leave_out: Iterable[str] = (),
    errors: bool = False,
    gaps: bool = False,
) -> Path:
    """Write the measurements of a made-up card into a folder of its slug below `folder`, and return that.

    With `errors` some checks ran out of memory, with `gaps` some pairs have no rows.

    Raises: ValueError for a name that is not known, or a folder in which measurements are kept.
    """
    without = set(leave_out)
    if card not in (*CARDS, ANOTHER):
        raise ValueError(f"no made-up card is called {card!r}; known: {', '.join((*CARDS, ANOTHER))}")
    if unknown := without - set(PARTS):
        raise ValueError(f"a card has no part {min(unknown)!r}; known: {', '.join(PARTS)}")
    if folder.resolve().is_relative_to(ROOT / "data"):
        raise ValueError(f"{folder} lies below {ROOT / 'data'}, where nothing made up may lie")
    if card == ANOTHER:
        place = another.write(folder, studies, without)
    else:
        place = _write(CARDS[card], folder, studies, without, errors, gaps)
    if "verdicts" not in without:
        write_table(place / "verdicts.csv", "verdicts", claims.verdicts(place))
    return place


def _write(card: Card, folder: Path, studies: Sequence[str], without: set[str], errors: bool, gaps: bool) -> Path:
    place = folder / card.slug
    with rows.on(card):
        tables = rows.measured(card, place, studies, errors, gaps)
        if "shapes" not in without:
            tables["shapes"] = rows.shapes(card)
        if "counters" not in without:
            tables["counters"] = rows.counters(card)
        if "op" not in without:
            tables |= rows.op(card, place, tables)
        for name, content in tables.items():
            complete = (dict.fromkeys(column.name for column in SCHEMAS[name]) | row for row in content)
            write_table(place / f"{name}.csv", name, complete)
        if "sanitizers" not in without:
            rows.sanitizers(card, place)
    return place


__all__ = ["ANOTHER", "CARDS", "KINDS", "MEASURED", "PARTS", "Card", "Kind", "write"]
