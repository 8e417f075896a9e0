"""Move runs that newer ones have superseded from the record of a card to its history.

    python -m analysis archive --check      say which would go

A run goes, complete or not, once two newer complete runs of its study exist; these two stay. Runs of the sanitizers
stay: their table holds one state, whose rows name older runs. Lines move as they stand in their file.

`history/` holds a gzipped CSV for each table: one place for all runs, and since the compressed bytes of a text begin
with those of its beginning, a version control stores of a longer one little but what is new. Each file is replaced in
one step, history first and runs.csv last: a call that is killed leaves runs in both, which those who read both count
once and the next call takes out of the record.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from . import files
from .files import BY_RUN, DataError, gpu_folder, parsed, read_records, replace_file
from .lock import locked

KEPT = 2  # complete runs of a study: the latest, and the one that it is compared with
STATE = "sanitizers"  # a study whose table is replaced
Key = tuple[str, str]  # run and study


def history_of(folder: Path, table: str) -> Path:
    """Where the archived rows of a table are; the file may not exist."""
    return folder / "history" / f"{table}.csv.gz"


def whole(folder: Path, table: str) -> pd.DataFrame:
    """The rows of history and record together, those in both once: not to be changed. Raises: DataError."""
    now = parsed(folder / f"{table}.csv", table)  # first: what is archived meanwhile is then in both
    path = history_of(folder, table)
    if not path.exists():
        return now
    old = parsed(path, table)
    runs, archived = (pd.MultiIndex.from_frame(rows[["run", "study"]]) for rows in (now, old))
    return pd.concat([old, now[~runs.isin(archived)]], ignore_index=True)


def superseded(runs: Iterable[Mapping[str, Any]]) -> list[Key]:
    """The runs that have `KEPT` newer complete runs of their study, by their rows in runs.csv."""
    rows = [row for row in runs if row["study"] != STATE]
    complete: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row["run"]):
        if row["complete"]:
            complete.setdefault(row["study"], []).append(row["run"])
    oldest = {study: names[-KEPT] for study, names in complete.items() if len(names) >= KEPT}
    return [(row["run"], row["study"]) for row in rows if row["run"] < oldest.get(row["study"], "")]


class Rows(NamedTuple):
    """The lines of a table as they stand in its file: the header, and each row with its run."""

    header: bytes
    rows: list[tuple[Key, bytes]]

    @classmethod
    def of(cls, path: Path, table: str) -> Rows:
        """No lines where there is no file. Raises: DataError where it is damaged."""
        if not path.exists():
            return cls(b"", [])
        parsed(path, table)
        content = path.read_bytes()
        lines = list(io.BytesIO(gzip.decompress(content) if path.suffix == ".gz" else content))
        reader = csv.reader((line.decode() for line in lines), strict=True)
        names = next(reader)
        run, study = names.index("run"), names.index("study")
        rows, begin = [], reader.line_num
        for cells in reader:  # a cell may hold line ends
            rows.append(((cells[run], cells[study]), b"".join(lines[begin : reader.line_num])))
            begin = reader.line_num
        return cls(lines[0], rows)

    def content(self) -> bytes:
        return self.header + b"".join(line for _, line in self.rows)


class Move(NamedTuple):
    """A table whose rows of some runs move: what its two files hold then, None of one that stays as it is."""

    record: Path
    history: Path
    kept: bytes | None
    archived: bytes | None

    @classmethod
    def of(cls, folder: Path, table: str, runs: Collection[Key]) -> Move:
        """Raises: DataError where a file is damaged, or a run is in both with other rows."""
        record, history = folder / f"{table}.csv", history_of(folder, table)
        now, old = Rows.of(record, table), Rows.of(history, table)
        going = [row for row in now.rows if row[0] in runs]
        if not going:
            return cls(record, history, None, None)
        shorter, header = sorted((now.header, old.header), key=len)
        if not header.startswith(shorter.rstrip(b"\n")):
            raise DataError(f"{history} has other columns than {record}: nothing is moved")
        there = {key for key, _ in old.rows}
        for run, study in sorted({key for key, _ in going} & there):
            if [row for row in going if row[0] == (run, study)] != [row for row in old.rows if row[0] == (run, study)]:
                raise DataError(f"run {run} of study {study} differs between {record} and {history}: nothing is moved")
        kept = Rows(now.header, [row for row in now.rows if row[0] not in runs]).content()
        new = [row for row in going if row[0] not in there]
        archived = gzip.compress(Rows(header, [*old.rows, *new]).content(), mtime=0) if new else None
        return cls(record, history, kept, archived)


def _size(folder: Path, tables: Iterable[str]) -> tuple[int, int]:
    """Bytes of the tables, and of their history."""
    paths = zip(*((folder / f"{table}.csv", history_of(folder, table)) for table in tables), strict=True)
    record, history = (sum(path.stat().st_size for path in each if path.exists()) for each in paths)
    return record, history


def archive(folder: Path, wait: bool = False) -> list[str]:
    """Move the superseded runs of a card to its history, and say what was done.

    Raises: DataError where a file is damaged or a run is in both with other rows: nothing is written then; DataError
    where the disk takes no more: called again, it goes on; Locked where another command writes to the folder.
    """
    with locked(folder, wait):
        lines = planned(folder)
        runs = set(superseded(read_records(folder / "runs.csv", "runs")))
        if not runs:
            return lines
        tables = (*BY_RUN, "runs")  # while a run is in runs.csv, the next call goes on with it
        before, _ = _size(folder, tables)
        moves = [Move.of(folder, table, runs) for table in tables]
        for move in moves:
            if move.archived is not None:
                replace_file(move.history, move.archived)
        for move in moves:
            if move.kept is not None:
                replace_file(move.record, move.kept)
        record, history = _size(folder, tables)
    sizes = f"{before / 1e6:.1f} MB of tables are {record / 1e6:.1f} MB now, and {history / 1e6:.1f} MB of history"
    return [*lines, f"{folder}: moved to history/; {sizes}. Commit this alone"]


def planned(folder: Path) -> list[str]:
    """The runs that two newer complete ones of their study supersede, a line a study."""
    rows = read_records(folder / "runs.csv", "runs")
    going = set(superseded(rows))
    mine: dict[str, list[str]] = {}
    for row in rows:
        if (row["run"], row["study"]) in going:
            name = row["run"] if row["complete"] else f"{row['run']} (incomplete)"
            mine.setdefault(row["study"], []).append(name)
    lines = [f"{folder.name}, study {study}: {', '.join(names)}" for study, names in mine.items()]
    return lines or [f"{folder.name}: no run has {KEPT} newer complete runs of its study"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis archive", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", metavar="SLUG", help="a folder of data/measured/ (default: all)")
    parser.add_argument("--check", action="store_true", help="say which runs would go, and write nothing")
    parser.add_argument("--wait", action="store_true", help="wait while another command writes to a card's folder")
    chosen = parser.parse_args(arguments)
    try:
        for slug in [chosen.gpu] if chosen.gpu else files.known_gpus():
            folder = gpu_folder(slug)
            for line in planned(folder) if chosen.check else archive(folder, chosen.wait):
                print(f"[archive] {line}")
    except DataError as error:
        print(f"archive: {error}", file=sys.stderr)
        return 1
    return 0
