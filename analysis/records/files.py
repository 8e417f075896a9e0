"""The files under data/: strict loading, and appending that loses nothing."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.version import PROBLEM_COLUMNS, Problem

from .schema import SCHEMAS, Column

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "data"
MEASURED = Path(os.environ.get("FUSED_PE_DATA") or DATA / "measured").resolve()  # `--data` names another
REFERENCE = "nvidia-h200"  # the committed record: what the book is written for
BUILD = ROOT / "_build"  # a folder for each GPU
COUNTS = DATA / "counts.csv"
RESOURCES = DATA / "resources.csv"
MUTATIONS = DATA / "mutations.csv"
LAUNCHES = DATA / "launches.csv"
HASHES = DATA / "hashes.csv"

PARSERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "integer": int,
    "number": float,
    "flag": lambda text: {"0": False, "1": True}[text],
}


class DataError(ValueError):
    """A file under data/ is missing, damaged or not what its schema says."""


def _parse(text: str, column: Column) -> Any:
    if text == "":
        if column.optional:
            return None
        raise ValueError("it is empty")
    return PARSERS[column.kind](text)


def read_table(path: Path, table: str) -> pd.DataFrame:
    """Load a CSV of `SCHEMAS[table]`, checking every cell.

    Raises:
        DataError: the file is missing, a column is missing or unknown, a line is truncated or a value is
            not of its column's kind; the message names file, line and column.
    """
    columns = SCHEMAS[table]
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text at byte {error.start}") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[Any]] = []
    try:
        header = next(reader, [])
        expected = [column.name for column in columns]
        added = [column.name for column in columns if column.added]
        for name in expected:
            if name not in header and name not in added:
                raise DataError(f"{path}, line 1: column {name!r} is missing")
        for name in header:
            if name not in expected:
                raise DataError(f"{path}, line 1: column {name!r} is unknown; allowed: {', '.join(expected)}")
        header += [name for name in added if name not in header]
        fewest = len(header) - len(added) if header[-len(added) :] == added else len(header)
        by_name = {column.name: column for column in columns}
        parsers = [functools.cache(functools.partial(_parse, column=by_name[name])) for name in header]  # cells recur
        for cells in reader:
            if fewest <= len(cells):
                cells += [""] * (len(header) - len(cells))  # a row of before a column was added
            if len(cells) != len(header):
                raise DataError(f"{path}, line {reader.line_num}: {len(cells)} cells where {len(header)} are due")
            row: list[Any] = []
            try:
                for parse, cell in zip(parsers, cells, strict=True):
                    row.append(parse(cell))
            except (ValueError, KeyError):
                name = header[len(row)]
                raise DataError(
                    f"{path}, line {reader.line_num}, column {name!r}: {cells[len(row)]!r} where "
                    f"{by_name[name].kind} is due"
                ) from None
            rows.append(row)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from None
    if text and not text.endswith("\n"):
        raise DataError(f"{path}, line {reader.line_num}: the last line has no end; the file is truncated")
    return pd.DataFrame(rows, columns=header)[expected]


def read_records(path: Path, table: str) -> list[dict[str, Any]]:
    """The rows of `read_table`, None where a cell is empty; no rows where there is no file yet. Raises: DataError."""
    if not path.exists():
        return []
    frame = read_table(path, table)
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    counted = [column.name for column in SCHEMAS[table] if column.kind == "integer"]
    floats = [name for name in counted if frame[name].dtype.kind == "f"]  # pandas has them where a cell is empty
    for row in rows:
        row.update({name: int(row[name]) for name in floats if row[name] is not None})
    return rows


def _format(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.6g}"  # a count read and written again stays exact
    return str(value)


def _lines(rows: Iterable[Mapping[str, Any]], table: str) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        unknown = set(row) - {column.name for column in SCHEMAS[table]}
        if unknown:
            raise DataError(f"{table} has no column {', '.join(sorted(unknown))}")
        writer.writerow([_format(row.get(column.name)) for column in SCHEMAS[table]])
    return out.getvalue()


def _header(columns: Iterable[Column]) -> bytes:
    return (",".join(column.name for column in columns) + "\n").encode()


def _name_added(path: Path, table: str) -> None:
    """Name the columns that were added since in the header of a file, in one step; its rows stay as they are."""
    before, header = _header(c for c in SCHEMAS[table] if not c.added), _header(SCHEMAS[table])
    with path.open("rb") as file:
        if before != header and file.readline() == before:
            temporary = path.with_suffix(".tmp")
            temporary.write_bytes(header + file.read())
            os.replace(temporary, path)


def append_rows(path: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows and force them to disk: all of them or, if the disk refuses, none.

    Raises:
        DataError: the rows could not be written; what was in the file is still there.
    """
    data = _lines(rows, table).encode()
    new = not path.exists() or path.stat().st_size == 0
    if new:
        data = _header(SCHEMAS[table]) + data
    try:
        if not new:
            _name_added(path, table)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab", buffering=0) as file:
            size = file.tell()
            try:
                while data:
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise DataError(f"{path}: could not be written ({error.strerror}); the rows before are kept") from error


def write_table(path: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a small table in one step. Raises: DataError; the old file is still there then."""
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    append_rows(temporary, table, rows)
    os.replace(temporary, path)


def read_json(path: Path) -> dict[str, Any]:
    """Raises: DataError when the file is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: {error.msg}") from None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def known_gpus() -> list[str]:
    """Slugs of the GPUs that have measurements."""
    return sorted(path.parent.name for path in MEASURED.glob("*/gpu.json"))


def gpu_folder(slug: str) -> Path:
    """data/measured/<slug>. Raises: DataError naming the slugs there are."""
    if slug not in known_gpus():
        raise DataError(f"no GPU called {slug!r} has been measured; there is: {', '.join(known_gpus()) or 'none'}")
    return MEASURED / slug


def is_committed(slug: str) -> bool:
    """Whether a GPU's measurements are the committed record of `REFERENCE`, not a folder of that name elsewhere."""
    return MEASURED / slug == DATA / "measured" / REFERENCE


def is_reference(slug: str, gpu: Mapping[str, Any]) -> bool:
    """Whether the measurements of a folder, with its gpu.json, are of the card of the committed record, `REFERENCE`."""
    return slug == REFERENCE and gpu.get("uuid") == read_json(DATA / "measured" / REFERENCE / "gpu.json").get("uuid")


def card_name(slug: str, gpu: Mapping[str, Any]) -> str:
    """What the book calls a card of a gpu.json: with the start of its UUID where its folder's name ends in that."""
    short = str(gpu.get("uuid") or "").removeprefix("GPU-")[:8]
    return f"{gpu['name']} ({short})" if short and slug.endswith(f"-{short}") else str(gpu["name"])


def target_of(gpu: Mapping[str, Any]) -> str:
    """What kernels are compiled for on a card of a gpu.json: `"sm_90"`."""
    return "sm_" + str(gpu["compute_capability"]).replace(".", "")


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem that a row of data is about."""
    return Problem(**{name: row[name] for name in PROBLEM_COLUMNS})


def problem_columns(problem: Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in PROBLEM_COLUMNS}
