"""Made-up rows of a card, put into the folders of their runs; and tables as tests read and change them."""

import gzip
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import record
from analysis.record import files
from analysis.record.columns import SCHEMAS
from analysis.record.runs import ABOUT, OF_RUN, OF_STUDY, TABLES, about, folders

INTEGERS = {column.name for column in SCHEMAS["runs"] if column.kind == "integer"}


def _of_card(path: Path, table: str) -> bool:
    return table in TABLES and path.name == f"{table}.csv" and not path.exists()


def read_table(path: Path, table: str) -> pd.DataFrame:
    """The rows of all runs beside `path`, or of a file."""
    return record.rows(path.parent, table) if _of_card(path, table) else files.read_table(path, table)


def read_records(path: Path, table: str) -> list[dict[str, Any]]:
    return record.records(path.parent, table) if _of_card(path, table) else files.read_records(path, table)


def write_table(path: Path, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Have rows in place of all that the runs beside `path` have of a table, or in a file."""
    if not _of_card(path, table):
        return files.write_table(path, table, rows)
    rows = list(rows)
    for folder in folders(path.parent):
        if table == "runs":
            files.write_json(folder / ABOUT, {**about(folder), "studies": {}})
        for each in folder.glob(f"{table}.csv*"):
            each.unlink()
    append_rows(path, table, rows)


def append_rows(path: Path, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to the folders of their runs beside `path`, or to a file."""
    if not _of_card(path, table):
        kept = files.read_records(path, table) if path.exists() else []
        return files.write_table(path, table, [*kept, *rows])
    for row in rows:
        folder = path.parent / str(row.get("run") or "unnamed")
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / ABOUT).exists():
            files.write_json(folder / ABOUT, {"complete": False, "studies": {}})
        if table == "runs":
            _tell(folder, row)
    for name in dict.fromkeys(str(row.get("run") or "unnamed") for row in rows if table != "runs"):
        mine = [row for row in rows if str(row.get("run") or "unnamed") == name]
        target = path.parent / name / f"{table}.csv"
        if (zipped := target.with_suffix(".csv.gz")).exists():
            with gzip.open(zipped) as old, target.open("wb") as new:
                shutil.copyfileobj(old, new)
            zipped.unlink()
        files.append(target, table, mine)


def _tell(folder: Path, row: Mapping[str, Any]) -> None:
    """Say of a run what a row of runs says."""
    row = {name: None if value != value else value for name, value in row.items()}
    row = {name: value.item() if hasattr(value, "item") else value for name, value in row.items()}
    row |= {name: int(row[name]) for name in INTEGERS if row.get(name) is not None}
    said = about(folder)
    studies = {**said["studies"], row["study"]: {name: row.get(name) for name in OF_STUDY}}
    complete = all(study["complete"] for study in studies.values())
    values = {name: row.get(name) for name in OF_RUN}
    found = {**said, "run": folder.name, **values, "complete": complete, "studies": studies}
    files.write_json(folder / ABOUT, found)
