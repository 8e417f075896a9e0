"""The files under data/: strict loading, and writing that loses nothing."""

import contextlib
import csv
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kernels.version import PROBLEM_COLUMNS

from ..errors import DataError as DataError
from .columns import SCHEMAS, Column, stored
from .problems import name_of, values_of
from .problems import problem_columns as problem_columns
from .problems import problem_of as problem_of
from .problems import with_problems as with_problems

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "data"
MEASURED = Path(os.environ.get("FUSED_PE_DATA") or DATA / "measured").expanduser().resolve()  # `--data` names another
REFERENCE = "nvidia-h100-80gb-hbm3"  # the committed record: what the book is written for
BUILD = ROOT / "_build"  # a folder for each GPU
COUNTS = DATA / "counts.csv"
RESOURCES = DATA / "resources.csv"
RELEASES = DATA / "releases.csv"
LAUNCHES = DATA / "launches.csv"
HASHES = DATA / "hashes.csv"
THEIR_TEST = DATA / "their_test.csv"

Row = dict[str, Any]

# Fields of a gpu.json: needed ones, and optional ones. Ceilings may still be measured.
NEEDED = ("name", "compute_capability", "sms", "ceilings")
CARD = (*NEEDED, "slug", "uuid", "memory_bytes", "l2_bytes", "power_limit_w", "tensor_dtype")

PARSERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "integer": int,
    "number": float,
    "flag": lambda text: {"0": False, "1": True}[text],
    "problem": values_of,
}


def _parse(where: Path | str, column: Column, text: str) -> Any:
    if text == "" and column.optional:
        return (None,) * len(PROBLEM_COLUMNS) if column.kind == "problem" else None
    try:
        return PARSERS[column.kind if text else "flag"](text)  # an empty text is as wrong as an empty flag
    except (ValueError, KeyError):
        raise DataError(f"{where}, column {column.name!r}: {text!r} where {column.kind} is due") from None


def read_rows(path: Path, table: str, of_run: bool = False, torn: bool = False) -> list[Row]:
    """The rows of a CSV of `SCHEMAS[table]`, gzipped or not, the problem as its columns, None where a cell is empty.

    A column that may be empty may be missing: it was added to the table after the file was written. Where the file may
    be `torn`, as a run that is being written, a last line without an end is left out.

    Raises: DataError with the file, and with the column that is missing, unknown or has a value not of its kind.
    """
    columns = {column.name: column for column in stored(table, of_run)}
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        content = content[: content.rfind(b"\n") + 1] if torn else content
        if not content.endswith(b"\n") and not torn:
            raise ValueError("the last line has no end")
        frame = pd.read_csv(io.BytesIO(content), dtype=object, keep_default_na=False)  # cells stay texts
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except pd.errors.EmptyDataError:
        frame = pd.DataFrame(columns=[*columns])
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged ({error})") from None
    lacking = {name for name, column in columns.items() if name not in frame and not column.optional}
    if wrong := lacking | (set(frame) - set(columns)):
        raise DataError(f"{path}: column {min(wrong)!r} is {'missing' if lacking else 'unknown'}")
    if frame.empty:
        return []
    found: dict[str, Sequence[Any]] = {}
    for name, column in columns.items():
        cells = list(frame[name]) if name in frame else [""] * len(frame)
        parsed = {cell: _parse(path, column, cell) for cell in set(cells)}  # they recur
        values = [parsed[cell] for cell in cells]
        found.update(zip(PROBLEM_COLUMNS, zip(*values)) if column.kind == "problem" else {name: values})
    names = [column.name for column in SCHEMAS[table] if column.name in found]
    return [dict(zip(names, row)) for row in zip(*map(found.__getitem__, names))]


def read_table(path: Path, table: str) -> pd.DataFrame:
    """The rows of a CSV."""
    return pd.DataFrame(read_rows(path, table), columns=[column.name for column in SCHEMAS[table]])


def read_records(path: Path, table: str) -> list[Row]:
    """The rows of a CSV, None where a cell is empty; none of no file."""
    return read_rows(path, table) if path.exists() else []


def _format(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.6g}"  # a count read and written again stays exact
    text = str(value).encode(errors="replace").decode().replace("\0", " ")  # what other programs say may be no UTF-8
    return " ".join(text.splitlines())  # a row is a line, so that a kill can cut only the last


def text_of(rows: Iterable[Mapping[str, Any]], table: str, of_run: bool = False, header: bool = True) -> str:
    """A table as text, a row a line."""
    columns = stored(table, of_run)
    known = {column.name for column in SCHEMAS[table]}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(column.name for column in columns)
    for row in rows:
        if unknown := set(row) - known:
            raise DataError(f"{table} has no column {', '.join(sorted(unknown))}")
        cells = [_problem_cell(row) if each.kind == "problem" else _format(row.get(each.name)) for each in columns]
        for column, cell in zip(columns, cells):
            _parse(f"{table}, a row that is not written", column, cell)
        writer.writerow(cells)
    return out.getvalue()


def _problem_cell(row: Mapping[str, Any]) -> str:
    values = [row.get(name) for name in PROBLEM_COLUMNS]
    if values[0] is None or values[0] != values[0]:
        return ""
    return name_of(*(int(value) if isinstance(value, float) else value for value in values))


def append(path: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a table of a run and force them to disk: all of them or, if the disk refuses, none.

    Raises: DataError; the file then keeps its content.
    """
    lines = text_of(rows, table, of_run=True, header=False)
    try:
        with open(path, "ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            data = (lines if size else text_of((), table, of_run=True) + lines).encode()
            try:
                while data:
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise DataError(f"{path}: could not be written ({error.strerror}); the rows before are kept") from error


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step that is on disk when this returns; of several writers the last counts.

    Raises: DataError; the old file is still there then.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        names = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(names)
        finally:
            os.close(names)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise DataError(f"{path}: could not be written ({error.strerror}); what was there is kept") from error


def write_table(path: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a small table."""
    replace_file(path, text_of(rows, table).encode())


def read_json(path: Path, needed: Sequence[str] = NEEDED) -> dict[str, Any]:
    """A card's gpu.json, or another file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: it is no JSON object")
    if lacking := [name for name in needed if name not in found]:
        raise DataError(f"{path}: it lacks {lacking[0]}")
    return found


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a JSON file."""
    try:
        text = json.dumps(content, indent=2, allow_nan=False)
    except ValueError as error:
        raise DataError(f"{path}: {error}; what was there is kept") from None
    replace_file(path, f"{text}\n".encode())


def known_gpus() -> list[str]:
    """Slugs of the GPUs that have measurements."""
    return sorted(path.parent.name for path in MEASURED.glob("*/gpu.json"))


def gpu_folder(slug: str | int) -> Path:
    """data/measured/<slug>; papermill makes a number of "4090"."""
    if str(slug) not in known_gpus():
        raw = "" if isinstance(slug, str) else "; papermill makes numbers of such names, but not with -r gpu NAME"
        raise DataError(f"no GPU called {slug!r} has been measured; there is: {', '.join(known_gpus()) or 'none'}{raw}")
    return MEASURED / str(slug)
