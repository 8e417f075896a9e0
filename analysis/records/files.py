"""The files under data/: strict loading, and appending that loses nothing."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import functools
import gzip
import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pandas as pd

from kernels.version import PROBLEM_COLUMNS, Problem

from .schema import SCHEMAS, Column

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "data"
MEASURED = Path(os.environ.get("FUSED_PE_DATA") or DATA / "measured").expanduser().resolve()  # `--data` names another
REFERENCE = "nvidia-h200"  # the committed record: what the book is written for
BUILD = ROOT / "_build"  # a folder for each GPU
COUNTS = DATA / "counts.csv"
RESOURCES = DATA / "resources.csv"
LAUNCHES = DATA / "launches.csv"
HASHES = DATA / "hashes.csv"
BY_RUN = ("checks", "timings", "op", "op_problems")  # tables whose rows are of runs
APPENDED = (*BY_RUN, "shapes")  # tables that grow row by row; others are replaced

# What a gpu.json must hold: words, and a check. Ceilings may still be measured.
CARD: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a name", lambda value: isinstance(value, str) and value != ""),
    "compute_capability": ('like "9.0"', lambda value: bool(re.fullmatch(r"\d+\.\d+", str(value)))),
    "sms": ("a number of SMs", lambda value: type(value) is int and value > 0),
    "ceilings": (
        "numbers above 0 by name",
        lambda value: isinstance(value, dict) and all(type(x) in (int, float) and x > 0 for x in value.values()),
    ),
}

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
    """Load a CSV of `SCHEMAS[table]`, gzipped or not, checking every cell.

    Raises:
        DataError: the file is missing, a column is missing or unknown, a line is truncated or a value is
            not of its column's kind; the message names file, line and column.
    """
    columns = SCHEMAS[table]
    try:
        zipped = path.suffix == ".gz"
        text = gzip.decompress(path.read_bytes()).decode() if zipped else path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged ({error})") from None
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


def written(path: Path) -> tuple[int, ...]:
    """Another value once a file has been written again; nothing where there is none."""
    state = path.stat() if path.exists() else None
    return (state.st_mtime_ns, state.st_size) if state else ()


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


def _lines(rows: Iterable[Mapping[str, Any]], table: str, as_before: bool = False) -> bytes:
    """Lines of a table; `as_before` ends rows that are empty in what was added at one time where these once ended."""
    columns = [column.name for column in SCHEMAS[table]]
    times = [column.added for column in SCHEMAS[table]]
    shorter = [times.index(each) for each in sorted(set(times) - {0}, reverse=True)] if as_before else []
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        unknown = set(row) - set(columns)
        if unknown:
            raise DataError(f"{table} has no column {', '.join(sorted(unknown))}")
        cells = [_format(row.get(name)) for name in columns]
        for length in shorter:
            if any(cells[length:]):
                break
            del cells[length:]
        writer.writerow(cells)
    return out.getvalue().encode()


def _header(columns: Iterable[Column]) -> bytes:
    return (",".join(column.name for column in columns) + "\n").encode()


def _name_added(path: Path, table: str) -> None:
    """Name the columns that were added since in the header of a file, in one step; its rows stay as they are."""
    columns, header = SCHEMAS[table], _header(SCHEMAS[table])
    before = [_header(c for c in columns if c.added < time) for time in {c.added for c in columns} - {0}]
    with path.open("rb") as file:
        if file.readline() not in before:
            return
    with _held(path), path.open("rb") as file:
        if file.readline() in before:
            replace_file(path, header + file.read())


@contextlib.contextmanager
def _held(path: Path) -> Iterator[IO[bytes]]:
    """The file, open to append, while no other process appends to it."""
    while True:
        with open(path, "ab", buffering=0) as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.exists(path) and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                yield file
                return  # else it was replaced while this process waited


def append_rows(path: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows and force them to disk: all of them or, if the disk refuses, none.

    Raises:
        DataError: the rows could not be written; what was in the file is still there.
    """
    _append(path, table, _lines(rows, table))


def _append(path: Path, table: str, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _name_added(path, table)
        with _held(path) as file:
            size = file.seek(0, os.SEEK_END)
            data = data if size else _header(SCHEMAS[table]) + data
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
        temporary.unlink(missing_ok=True)
        raise DataError(f"{path}: could not be written ({error.strerror}); what was there is kept") from error


def write_table(path: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a small table; rows of before a column was added stay byte for byte. Raises: as `replace_file`."""
    replace_file(path, _header(SCHEMAS[table]) + _lines(rows, table, as_before=True))


def read_json(path: Path) -> dict[str, Any]:
    """A card's gpu.json. Raises: DataError when the file is missing or damaged, or a field of `CARD` is not as said."""
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        for name, (kind, is_right) in CARD.items():
            value = card.get(name) if isinstance(card, dict) else None
            if not is_right(value):
                raise DataError(f"{path}: {name} is {json.dumps(value)}; it must be {kind}")
        return card
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: {error.msg}") from None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Raises: as `replace_file`."""
    replace_file(path, (json.dumps(content, indent=2) + "\n").encode())


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


@functools.cache
def _problem(*values: Any) -> Problem:
    return Problem(**dict(zip(PROBLEM_COLUMNS, values)))


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem that a row of data is about."""
    return _problem(*(row[name] for name in PROBLEM_COLUMNS))


def with_problems(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with the problem that each is about, in a column `problem`."""
    values = frame[list(PROBLEM_COLUMNS)].itertuples(index=False, name=None)
    return frame.assign(problem=[_problem(*each) for each in values])


def problem_columns(problem: Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in PROBLEM_COLUMNS}
