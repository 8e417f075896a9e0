"""Put cards that were measured elsewhere, on other nodes or in other folders, into the current data folder.

    python -m analysis merge DIR...          each DIR holds a folder for each card, as data/measured does

A complete run that is not there yet is appended whole. One that is there already must be the same, row for row: else
nothing is merged. Incomplete runs stay where they are, to be gone on with there. Archived runs count as well: one of
the data folder is there already, one of a DIR is appended to the record. Of counters, sanitizers and shapes, which have
one state and no runs, what is not there yet is added. Nothing that is there is rewritten, and everything is read and
compared before anything is written; merged again it changes nothing. `verdicts.csv` follows from the rest:
`python -m analysis claims` writes it.

A card goes to the folder that holds it, else to one of its own; with `--gpu SLUG` to that folder, which takes any card
of its model and power limit, as when measuring.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels.version import PROBLEM_COLUMNS

from . import cards, files
from .archive import history_of
from .files import BY_RUN, DataError, append_rows, read_json, read_records, write_json, write_table
from .lock import locked

Row = dict[str, Any]
Groups = dict[tuple[Any, ...], list[Row]]

RUN = ("run", "study")
STATES = {"counters": ("version", *PROBLEM_COLUMNS), "sanitizers": ("version",), "shapes": PROBLEM_COLUMNS}


def _grouped(path: Path, table: str, columns: Iterable[str]) -> Groups:
    groups: Groups = {}
    for row in read_records(path, table):
        groups.setdefault(tuple(row[name] for name in columns), []).append(row)
    return groups


def _read(folder: Path) -> dict[str, Groups]:
    """The rows of every table of a card, archived ones too, by run or by what they are of.

    Raises: DataError where a table is damaged.
    """
    columns = {"runs": RUN, **dict.fromkeys(BY_RUN, RUN), **STATES}
    return {
        table: _grouped(folder / f"{table}.csv", table, names) | _grouped(history_of(folder, table), table, names)
        for table, names in columns.items()
    }


@dataclass
class Card:
    """A card of the current data folder: what it holds, and what is to be added to it."""

    folder: Path
    gpu: dict[str, Any]
    there: dict[str, Groups]
    new: bool = False
    added: dict[str, list[Row]] = field(default_factory=dict)

    def add(self, table: str, key: tuple[Any, ...], rows: Sequence[Row]) -> bool:
        """Add those rows of a group that are not there yet; whether the group is then the same as `rows`."""
        there = self.there[table].setdefault(key, [])
        if there != rows[: len(there)]:
            return False
        rest = list(rows[len(there) :])
        there += rest
        self.added.setdefault(table, []).extend(rest)
        return True

    def write(self) -> None:
        """Append what was added: its runs last, so that a merge that is cut short is gone on with by the next."""
        path = self.folder / "gpu.json"
        if not path.exists() or read_json(path) != self.gpu:
            write_json(path, self.gpu)
        for table in ("shapes", *BY_RUN):
            if self.added.get(table):
                append_rows(self.folder / f"{table}.csv", table, self.added[table])
        for table in ("counters", "sanitizers", "runs"):
            if self.added.get(table):
                path = self.folder / f"{table}.csv"
                write_table(path, table, [*read_records(path, table), *self.added[table]])


def _take(source: Path, card: Card) -> str:
    """Plan what is added of one card, and say it. Raises: DataError where a run is there already with other rows."""
    found = _read(source)
    left_out, kept, appended, known = [], 0, 0, 0
    for table, groups in found.items():
        if table in STATES:
            kept += sum(not card.add(table, key, rows) for key, rows in groups.items())
    added = {row["run"] for row in card.added.get("sanitizers", ())}
    for key, rows in found["runs"].items():
        run, study = key
        if study == "sanitizers":
            if run in added:
                card.add("runs", key, rows)
            continue
        if not rows[-1]["complete"]:
            left_out.append(f"{study} {run}")
            continue
        whole = card.there["runs"].get(key)
        tables = {table: (card.there[table].get(key, []), found[table].get(key, [])) for table in BY_RUN}
        same = all(there == given if whole else there == given[: len(there)] for there, given in tables.values())
        if not same or (whole and whole != rows):
            raise DataError(
                f"run {run} of study {study} in {source} differs from the run of that name in {card.folder}"
            )
        known, appended = (known + 1, appended) if whole else (known, appended + 1)
        for table, (_, given) in tables.items():
            card.add(table, key, given)
        card.add("runs", key, rows)
    said = f"{source} into {card.folder}: {appended} runs appended, {known} there already"
    said += f"; incomplete, left out: {', '.join(left_out)}" if left_out else ""
    return said + (f"; of counters, sanitizers and shapes {kept} kept as they are there" if kept else "")


def _same(holds: Mapping[str, Any], gpu: Mapping[str, Any]) -> bool:
    """Whether two gpu.json are of one card; of two from before UUIDs were kept, whether all else is the same."""
    if "uuid" in holds or "uuid" in gpu:
        return "uuid" in gpu and cards.same_card(holds, gpu)
    return all(holds.get(name) == gpu.get(name) for name in cards.IDENTITY)


def _place(source: Path, gpu: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]], named: str) -> str:
    """The name of a card's folder: `named`, that which holds it, or the first of its names that is free.

    Raises: DataError.
    """
    if named:
        if named in known and not cards.like(known[named], gpu):
            there = f"{files.MEASURED / named} is of {cards.words(known[named])}"
            raise DataError(f"{there}, {source} of {cards.words(gpu)}")
        return named
    for name, holds in known.items():
        if _same(holds, gpu) and ("uuid" in gpu or name == source.name):
            return name
    for name in cards.names({**gpu, "slug": source.name}):
        if name not in known:
            return name
    raise DataError(f"{source} is of a card without a UUID, and {files.MEASURED / source.name} of another: rename it")


def merge(sources: Sequence[Path], wait: bool = False, named: str = "") -> list[str]:
    """Merge the cards under each source, into the folder `named` if any is, and say what was done, a line a card.

    Raises: DataError where anything is damaged or contradicts what is there, Locked where a card is being written to:
    nothing is written then; DataError where the disk takes no more: merged again, it goes on.
    """
    folders = [path.parent for source in sources for path in sorted(source.glob("*/gpu.json"))]
    for source in sources:
        if not any(folder.parent == source for folder in folders):
            raise DataError(f"{source} holds no folder of a card, with its gpu.json")
        if source.resolve() == files.MEASURED:
            raise DataError(f"{source} is the folder that is merged into")
    cards.named_well(named)
    known = {name: read_json(files.MEASURED / name / "gpu.json") for name in files.known_gpus()}
    with contextlib.ExitStack() as held:
        merged: dict[str, Card] = {}
        lines = []
        for source in folders:
            gpu = read_json(source / "gpu.json")
            name = _place(source, gpu, known, named)
            folder = files.MEASURED / name
            if name not in merged:
                new = name not in known
                known[name] = {**gpu, "slug": name} if new else known[name]
                if not new:
                    held.enter_context(locked(folder, wait))
                merged[name] = Card(folder, dict(known[name]), _read(folder), new)
            if not merged[name].gpu.get("ceilings"):
                merged[name].gpu["ceilings"] = gpu.get("ceilings", {})
            lines.append(_take(source, merged[name]))
        for card in merged.values():
            if card.new:
                held.enter_context(locked(card.folder, wait))
                if (card.folder / "gpu.json").exists():
                    raise DataError(f"{card.folder} was made while this command read the others; merge again")
        for card in merged.values():
            card.write()
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis merge", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="holds a folder for each card")
    cards.add_options(parser)
    chosen = parser.parse_args(arguments)
    try:
        print("\n".join(f"[merge] {line}" for line in merge(chosen.folders, chosen.wait, chosen.gpu)))
    except DataError as error:
        print(f"merge: {error}", file=sys.stderr)
        return 1
    return 0
