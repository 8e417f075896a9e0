"""The files under data/: strict loading, and writing that loses nothing."""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import hashlib
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

from .columns import SCHEMAS, Column
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

UNFOLDED = ("published", "op")  # tables with rows of which some of a problem's columns are known
Cells = dict[str, list[Any]]  # the values of each column of a table

# What a gpu.json holds: words, whether it must, and a check. Ceilings may still be measured.
_Check = Callable[[Any], bool]


def _count(value: Any) -> bool:
    return type(value) is int and value > 0


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


CARD: dict[str, tuple[str, bool, _Check]] = {
    "name": ("a name", True, _text),
    "compute_capability": ('like "9.0"', True, lambda value: bool(re.fullmatch(r"\d+\.\d+", str(value)))),
    "sms": ("a number of SMs", True, _count),
    "ceilings": (
        "numbers above 0 by name",
        True,
        lambda value: isinstance(value, dict) and all(type(x) in (int, float) and x > 0 for x in value.values()),
    ),
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


class DataError(ValueError):
    """A file under data/ is missing, damaged or not what its schema says."""


# ---------------------------------------------------------------- reading


def stored(table: str, of_run: bool) -> list[Column]:
    """The columns of a table in its file: one for the problem, and none for the run, which its folder names."""
    found: list[Column] = []
    for column in SCHEMAS[table]:
        if column.name in PROBLEM_COLUMNS and table not in UNFOLDED:
            if column.name == PROBLEM_COLUMNS[0]:
                found.append(Column("problem", "problem", "the problem, by its name", column.optional))
        elif not (of_run and column.name == "run"):
            found.append(column)
    return found


def _parse(text: str, column: Column) -> Any:
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
    text = _text_of(path)
    if torn:
        text = text[: text.rfind("\n") + 1]
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
        if not header and torn:
            return {column.name: [] for column in SCHEMAS[table] if not (of_run and column.name == "run")}
        for name, column in columns.items():
            if name not in header and not (column.optional and header):
                raise DataError(f"{path}, line 1: column {name!r} is missing")
        for name in header:
            if name not in columns:
                raise DataError(f"{path}, line 1: column {name!r} is unknown; allowed: {', '.join(columns)}")
        lines = [0]
        rows = []
        for cells in reader:
            if len(cells) != len(header):
                raise DataError(f"{path}, line {reader.line_num}: {len(cells)} cells where {len(header)} are due")
            rows.append(cells)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from None
    if text and not text.endswith("\n"):
        raise DataError(f"{path}, line {reader.line_num}: the last line has no end; the file is truncated")
    found: Cells = {}
    for name, texts in zip(header, zip(*rows) if rows else [()] * len(header), strict=True):
        parse = functools.cache(functools.partial(_parse, column=columns[name]))  # cells recur
        values: list[Any] = []
        try:
            for cell in texts:
                values.append(parse(cell))
        except (ValueError, KeyError):
            bad = texts[len(values)]
            where = f"{path}, line {lines[len(values) + 1]}, column {name!r}"
            raise DataError(f"{where}: {bad!r} where {columns[name].kind} is due") from None
        if columns[name].kind == "problem":
            transposed = zip(*values) if values else [()] * len(PROBLEM_COLUMNS)
            found.update((each, list(column)) for each, column in zip(PROBLEM_COLUMNS, transposed, strict=True))
        else:
            found[name] = values
    names = [column.name for column in SCHEMAS[table] if not (of_run and column.name == "run")]
    return {name: found[name] if name in found else [None] * len(rows) for name in names}


def read_table(path: Path, table: str) -> pd.DataFrame:
    """Load a CSV of `SCHEMAS[table]`. Raises: as `read_cells`."""
    return pd.DataFrame(read_cells(path, table))


def written(path: Path) -> tuple[int, ...]:
    """Another value once a file has been written again; nothing where there is none."""
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return state.st_mtime_ns, state.st_size


def per_file(read: Callable[..., Any]) -> Callable[..., Any]:
    """`read(path, *rest)`, once until the file is written again: what it returns is not to be changed."""

    @functools.cache
    def found(path: Path, state: tuple[int, ...], *rest: Any) -> Any:
        return read(path, *rest)

    @functools.wraps(read)
    def ask(path: Path, *rest: Any) -> Any:
        return found(path, written(path), *rest)

    return ask


@per_file
def parsed(path: Path, table: str) -> pd.DataFrame:
    """`read_table`, but not to be changed. Raises: DataError."""
    return read_table(path, table)


def read_records(path: Path, table: str) -> list[dict[str, Any]]:
    """The rows of `read_table`, None where a cell is empty; none of no file or an empty one. Raises: DataError."""
    if not path.exists() or not path.stat().st_size:
        return []
    cells = read_cells(path, table)
    return [dict(zip(cells, row)) for row in zip(*cells.values())]


# ---------------------------------------------------------------- writing


def _format(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.6g}"  # a count read and written again stays exact
    return " ".join(str(value).splitlines())  # a row is a line, so that a kill can cut only the last


def lines_of(rows: Iterable[Mapping[str, Any]], table: str, of_run: bool = False) -> str:
    """The lines of a table. Raises: DataError for a column that it has not."""
    columns = [column.name for column in stored(table, of_run)]
    known = {column.name for column in SCHEMAS[table]}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
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


def header_of(table: str, of_run: bool = False) -> str:
    return ",".join(column.name for column in stored(table, of_run)) + "\n"


def append(path: Path, lines: str, header: str) -> None:
    """Append lines and force them to disk: all of them or, if the disk refuses, none.

    Raises: DataError; what was in the file is still there.
    """
    try:
        with open(path, "ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            data = ((header if not size else "") + lines).encode()
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
    """Replace a file in one step that is on disk when this returns.

    Raises: DataError; the old file is still there then.
    """
    temporary = path.with_name(f"{path.name}.tmp")
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
    replace_file(path, (header_of(table) + lines_of(rows, table)).encode())


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


def digest(paths: Iterable[Path]) -> str:
    """Of the names and contents of files: another one when any of them has changed."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(f"{os.path.relpath(path, ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()
