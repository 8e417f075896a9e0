"""The files under data/: strict loading, and writing that loses nothing."""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

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
REFERENCE = "nvidia-h200"  # the committed record: what the book is written for
BUILD = ROOT / "_build"  # a folder for each GPU
COUNTS = DATA / "counts.csv"
RESOURCES = DATA / "resources.csv"
LAUNCHES = DATA / "launches.csv"
HASHES = DATA / "hashes.csv"

Cells = dict[str, list[Any]]  # the values of each column of a table

def _count(value: Any) -> bool:
    return type(value) is int and value > 0


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _rates(value: Any) -> bool:
    return isinstance(value, dict) and all(type(each) in (int, float) and each > 0 for each in value.values())


# What a gpu.json holds: words, whether it must, and a check. Ceilings may still be measured.
CARD: dict[str, tuple[str, bool, Callable[[Any], bool]]] = {
    "name": ("a name", True, _text),
    "compute_capability": ('like "9.0"', True, lambda value: bool(re.fullmatch(r"\d+\.\d+", str(value)))),
    "sms": ("a number of SMs", True, _count),
    "ceilings": ("numbers above 0 by name", True, _rates),
    "slug": ("the name of its folder", False, _text),
    "uuid": ("a UUID, or null where the card says none", False, lambda value: value is None or _text(value)),
    "memory_bytes": ("a number of bytes", False, _count),
    "l2_bytes": ("a number of bytes, 0 where the card does not say", False, lambda value: value == 0 or _count(value)),
    "power_limit_w": ("watts, or null", False, lambda value: value is None or type(value) is int),
    "tensor_dtype": ("a dtype", False, _text),
}

PARSERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "integer": int,
    "number": float,
    "flag": lambda text: {"0": False, "1": True}[text],
    "problem": values_of,
}


# ---------------------------------------------------------------- reading


def _parse(column: Column, text: str) -> Any:
    if text == "":
        if column.optional:
            return (None,) * len(PROBLEM_COLUMNS) if column.kind == "problem" else None
        raise ValueError("it is empty")
    return PARSERS[column.kind](text)


def _text_of(path: Path) -> str:
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged ({error})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text at byte {error.start}") from None


def read_cells(path: Path, table: str, of_run: bool = False, torn: bool = False) -> Cells:
    """The values of each column of a CSV of `SCHEMAS[table]`, gzipped or not, the problem as its columns.

    A column that may be empty may be missing: it was added to the table after the file was written. Where the file may
    be `torn`, as a run that is being written, a last line without an end is left out.

    Raises:
        DataError: the file is missing, a column is missing or unknown, a line is truncated or a value is
            not of its column's kind; the message names file, line and column.
    """
    columns = {column.name: column for column in stored(table, of_run)}
    names = [column.name for column in SCHEMAS[table] if not (of_run and column.name == "run")]
    text = _text_of(path)
    if torn:
        text = text[: text.rfind("\n") + 1]
        if not text:
            return {name: [] for name in names}
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header, *rows = [*reader] or [[]]
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from None
    for name, column in columns.items():
        if name not in header and not (column.optional and header):
            raise DataError(f"{path}, line 1: column {name!r} is missing")
    for name in header:
        if name not in columns:
            raise DataError(f"{path}, line 1: column {name!r} is unknown; allowed: {', '.join(columns)}")
    for line, row in enumerate(rows, 2):  # a row is a line
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} cells where {len(header)} are due")
    if not text.endswith("\n"):
        raise DataError(f"{path}, line {len(rows) + 1}: the last line has no end; the file is truncated")
    found: Cells = {}
    for name, texts in zip(header, zip(*rows) if rows else [()] * len(header), strict=True):
        parse, values = functools.cache(functools.partial(_parse, columns[name])), []  # cells recur
        try:
            for cell in texts:
                values.append(parse(cell))
        except (ValueError, KeyError):
            bad, line = texts[len(values)], len(values) + 2
            kind = columns[name].kind
            raise DataError(f"{path}, line {line}, column {name!r}: {bad!r} where {kind} is due") from None
        if columns[name].kind == "problem":
            split = zip(*values) if values else [()] * len(PROBLEM_COLUMNS)
            found.update(zip(PROBLEM_COLUMNS, map(list, split)))
        else:
            found[name] = values
    return {name: found[name] if name in found else [None] * len(rows) for name in names}


def written(path: Path) -> tuple[int, ...]:
    """Another value once a file has been written again; nothing where there is none."""
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return state.st_mtime_ns, state.st_size


def read_table(path: Path, table: str) -> pd.DataFrame:
    """The rows of a CSV, read once until the file is written again: not to be changed. Raises: as `read_cells`."""
    return _read_table(path, table, written(path))


@functools.lru_cache(maxsize=64)
def _read_table(path: Path, table: str, state: tuple[int, ...]) -> pd.DataFrame:
    return pd.DataFrame(read_cells(path, table))


def read_records(path: Path, table: str) -> list[dict[str, Any]]:
    """The rows of `read_table` as dicts, None where a cell is empty; none of no file. Raises: DataError."""
    return dicts(read_table(path, table), table) if path.exists() else []


def dicts(frame: pd.DataFrame, table: str) -> list[dict[str, Any]]:
    """The rows of a table as dicts, None where a cell is empty."""
    found = frame.astype(object).where(frame.notna(), None).to_dict("records")
    counted = [c.name for c in SCHEMAS[table] if c.kind == "integer" and frame[c.name].dtype.kind == "f"]
    for row in found:  # pandas has floats where a cell is empty
        row.update({name: int(row[name]) for name in counted if row[name] is not None})
    return found


# ---------------------------------------------------------------- writing


def _format(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.6g}"  # a count read and written again stays exact
    return " ".join(str(value).splitlines())  # a row is a line, so that a kill can cut only the last


def text_of(rows: Iterable[Mapping[str, Any]], table: str, of_run: bool = False, header: bool = True) -> str:
    """A table as text, a row a line. Raises: DataError for a column that it has not."""
    columns = [column.name for column in stored(table, of_run)]
    known = {column.name for column in SCHEMAS[table]}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(columns)
    for row in rows:
        if unknown := set(row) - known:
            raise DataError(f"{table} has no column {', '.join(sorted(unknown))}")
        writer.writerow(_problem_cell(row) if name == "problem" else _format(row.get(name)) for name in columns)
    return out.getvalue()


def _problem_cell(row: Mapping[str, Any]) -> str:
    values = [row.get(name) for name in PROBLEM_COLUMNS]
    if values[0] is None or values[0] != values[0]:
        return ""
    return name_of(*(int(value) if isinstance(value, float) else value for value in values))


def append(path: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a table of a run and force them to disk: all of them or, if the disk refuses, none.

    Raises: DataError; what was in the file is still there.
    """
    try:
        with open(path, "ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            data = text_of(rows, table, of_run=True, header=not size).encode()
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
    """Replace a small table. Raises: as `replace_file`."""
    replace_file(path, text_of(rows, table).encode())


def read_json(path: Path) -> dict[str, Any]:
    """A card's gpu.json. Raises: DataError when the file is missing or damaged, or a field of `CARD` is not as said."""
    card = load_json(path)
    for name, (kind, needed, is_right) in CARD.items():
        if (needed or name in card) and not is_right(card.get(name)):
            raise DataError(f"{path}: {name} is {json.dumps(card.get(name))}; it must be {kind}")
    return card


def load_json(path: Path) -> dict[str, Any]:
    """The fields of a JSON file; none where it holds something else. Raises: DataError when it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: {error}") from None
    return found if isinstance(found, dict) else {}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Raises: as `replace_file`."""
    replace_file(path, (json.dumps(content, indent=2) + "\n").encode())


# ---------------------------------------------------------------- cards


def known_gpus() -> list[str]:
    """Slugs of the GPUs that have measurements."""
    return sorted(path.parent.name for path in MEASURED.glob("*/gpu.json"))


def gpu_folder(slug: str | int) -> Path:
    """data/measured/<slug>; papermill makes a number of "4090". Raises: DataError naming the slugs there are."""
    slug = str(slug)
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
