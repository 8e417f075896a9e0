"""Where each number that a finding shows is from: data/numbers.csv, a row a number; a strict build compares it."""

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from .. import findings
from ..evidence import Estimate, Estimates
from ..evidence.estimates import NOTHING
from ..record import files
from ..record.files import DATA, REFERENCE, ROOT, DataError, Row
from ..record.text import number

NOTEBOOKS = ROOT / "analysis" / "notebooks"
NUMBERS = DATA / "numbers.csv"
SOURCE = re.compile(r"(?P<table>\w+)\S*(?: of (?P<study>\w+), runs? (?P<run>.+))?")  # as evidence names what it read
OF_CARD = f"data/measured/{REFERENCE}"
PLACES = {"plans": "the plans of kernels/", "counters": f"{OF_CARD}/*/counters.csv.gz", "gpu": f"{OF_CARD}/gpu.json"}
PLACES["verdicts"] = f"{OF_CARD}/verdicts.csv"  # of tables that are not data/<table>.csv


def shown_in(notebook: Path) -> list[str]:
    """The ids of the findings that a notebook names."""
    text = notebook.read_text(encoding="utf-8")
    return [each for each in sorted(findings.load()) if f'\\"{each}\\"' in text]


def rows() -> list[Row]:
    """The rows of numbers.csv, by page and finding."""
    pages: dict[str, list[str]] = {}
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        for each in shown_in(notebook):
            pages.setdefault(each, []).append(notebook.stem)
    return [row for id, on in pages.items() for row in rows_of(id, " ".join(on))]


def rows_of(id: str, pages: str = "") -> Iterator[Row]:
    """A row for each number of a finding; of a range, for each in it."""
    home = findings.load()[id].home
    for name, given in home.given.items():
        for each in given.known.values() if isinstance(given, Estimates) else [given]:
            exact = Estimate.exact(each) if isinstance(each, int | float) else None  # a number of the code
            one = each if isinstance(each, Estimate) else exact  # and of words there is none
            about, bounds = (one.about, (one.value, one.low, one.high)) if one else (NOTHING, (None,) * 3)
            read = [found for source in about.sources if (found := SOURCE.match(source))]
            where = {part: " ".join(dict.fromkeys(found[part] or "" for found in read)) for part in SOURCE.groupindex}
            where["run"] = " ".join(dict.fromkeys(where["run"].replace(",", "").split()))
            yield {
                **dict(zip(("page", "finding", "number", "shown"), (pages, id, name, home.numbers[name]))),
                **dict(zip(("value", "low", "high"), bounds)), **where,
                "versions": " ".join(about.names), "problems": " ".join(about.problems),
                "timer": one.sample.timer if one and one.sample else "",
            }  # fmt: skip


def differs() -> bool:
    """Whether the file is not what the findings show."""
    return not NUMBERS.exists() or NUMBERS.read_text(encoding="utf-8") != files.text_of(rows(), "numbers")


def told(id: str) -> str:
    """A finding, its numbers with their intervals and rows, and the code that computes them."""
    if id not in findings.load():
        raise DataError(f"there is no finding {id!r}; data/numbers.csv names all")
    finding = findings.load()[id]
    lines = [finding.home.text, ""]
    for row in rows_of(id):
        lines.append(f"{row['number']}: {row['shown']}")
        if row["value"] is not None:
            low, high = (number(row[end]) for end in ("low", "high"))
            lines.append(f"  value     {number(row['value'])}" + f", 95 % interval {low} to {high}" * (low != high))
        for table in row["table"].split():
            names = (f"measured/*/{run}/{table}.csv.gz" for run in row["run"].split())  # of whichever card
            of_runs = [str(at.relative_to(ROOT)) for name in names for at in DATA.glob(name)]
            found = of_runs or [PLACES.get(table, f"data/{table}.csv")]
            lines += [f"  rows      {at}" for at in found]
        known = {"study": row["study"], "timer": row["timer"], "of": row["versions"], "at": row["problems"]}
        lines += [f"  {what:9s} {value}" for what, value in known.items() if value]
    code, first = inspect.getsourcelines(finding.evaluate)
    path = Path(inspect.getsourcefile(finding.evaluate) or "").relative_to(ROOT)
    return "\n".join([*lines, "", f"{path}, line {first}:", "", "".join(code)])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis number", description="Say where a number is from")
    parser.add_argument("finding", nargs="?", help="by its id; without one data/numbers.csv is written")
    if id := parser.parse_args(arguments).finding:
        print(told(id))
        return 0
    files.write_table(NUMBERS, "numbers", found := rows())
    print(f"[number] {len(found)} rows in {NUMBERS}")
    return 0
