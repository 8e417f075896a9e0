"""The columns of the tables under data/: data/columns.csv says of each what it means and what kind of value it has."""

import csv
from pathlib import Path
from typing import NamedTuple

STATUSES = ("ok", "wrong", "infeasible", "unsupported", "error")  # of a check, from the best to the worst
DESCRIBED = Path(__file__).resolve().parents[2] / "data" / "columns.csv"


class Column(NamedTuple):
    """A column of a table. One that is added to a table later may be empty: files of before lack it."""

    kind: str
    name: str
    optional: bool


STORED: dict[str, list[Column]] = {}  # as a table is stored: a problem is one cell
with DESCRIBED.open(encoding="utf-8", newline="") as file:
    for row in csv.DictReader(file):
        STORED.setdefault(row["table"], []).append(Column(row["kind"], row["column"], row["may_be_empty"] == "1"))
SCHEMAS = {  # as it is read: a problem is its columns
    table: tuple(
        each._replace(optional=column.optional)
        for column in columns
        for each in (STORED["problem"] if column.kind == "problem" else [column])
    )
    for table, columns in STORED.items()
}


def stored(table: str, of_run: bool = False) -> list[Column]:
    """The columns of a table in its file; in a run's, whose folder names the run, none for that."""
    return [column for column in STORED[table] if not (of_run and column.name == "run")]
