"""The tables of data/README.md, which `python -m analysis dictionary` writes from the schemas, below its prose."""

import argparse
from collections.abc import Iterable

from .columns import PROBLEM, SCHEMAS, Column, stored
from .files import DATA
from .runs import TABLES

PATH = DATA / "README.md"
BELOW = "<!-- from here written by `python -m analysis dictionary` -->\n"


def _rows(columns: Iterable[Column]) -> str:
    lines = [f"| {c.name} | {c.kind}{', may be empty' if c.optional else ''} | {c.meaning} |" for c in columns]
    return "\n".join(["| column | kind | meaning |", "|---|---|---|", *lines]) + "\n"


def dictionary() -> str:
    """The text of data/README.md: the prose that it has, and today's tables."""
    parts = [f"## problem\n\n{_rows(PROBLEM)}"]
    for table in SCHEMAS:
        place = f"measured/&lt;gpu&gt;/&lt;run&gt;/{table}.csv" if table in TABLES else f"{table}.csv"
        place = place.replace("runs.csv", "run.json")
        place = f"measured/&lt;gpu&gt;/{place}" if table == "verdicts" else place
        columns = (c for c in stored(table, table in TABLES) if c.name not in {p.name for p in PROBLEM})
        parts.append(f"## {place}\n\n{_rows(columns)}")
    return PATH.read_text(encoding="utf-8").partition(BELOW)[0] + BELOW + "\n" + "\n".join(parts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis dictionary", description=(__doc__ or "").splitlines()[0])
    parser.parse_args(arguments)
    PATH.write_text(dictionary(), encoding="utf-8")
    print(f"[dictionary] {PATH}")
    return 0
