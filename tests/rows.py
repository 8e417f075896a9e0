"""Made-up rows of a card, put into the folders of their runs."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.record import files
from analysis.record.runs import ABOUT, OF_RUN, OF_STUDY, about


def add_rows(card: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows of a table to the folders of their runs; those of runs say there what became of a study."""
    by_run: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)
    for name, mine in by_run.items():
        folder = card / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / ABOUT).exists():
            files.write_json(folder / ABOUT, {"complete": False, "studies": {}})
        if table == "runs":
            _tell(folder, mine)
        else:
            files.append(folder / f"{table}.csv", table, mine)


def replace_rows(card: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Have rows in place of all that the runs of a card have of a table."""
    rows = list(rows)
    for path in card.glob(f"*/{table}.csv*"):
        path.unlink()
    add_rows(card, table, rows)


def _tell(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    said = about(folder)
    for row in rows:
        said |= {name: row.get(name) for name in OF_RUN} | {"run": folder.name}
        said["studies"][row["study"]] = {name: row.get(name) for name in OF_STUDY}
    said["complete"] = all(study["complete"] for study in said["studies"].values())
    files.write_json(folder / ABOUT, said)
