"""The tables under data/: what every column means, strict loading, and appending that loses nothing.

`SCHEMAS` is the one description; data/README.md is written from it (`python -m analysis.records.files`).
"""

from __future__ import annotations

import csv
import functools
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.version import PROBLEM_COLUMNS, Problem

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "data"
MEASURED = DATA / "measured"
COUNTS = DATA / "counts.csv"
RESOURCES = DATA / "resources.csv"
MUTATIONS = DATA / "mutations.csv"

STATUSES = ("ok", "wrong", "infeasible", "unsupported", "error")  # of a check, from the best to the worst

PARSERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "integer": int,
    "number": float,
    "flag": lambda text: {"0": False, "1": True}[text],
}


class DataError(ValueError):
    """A file under data/ is missing, damaged or not what its schema says."""


@dataclass(frozen=True)
class Column:
    name: str
    kind: str
    meaning: str
    optional: bool = False


_PROBLEM_MEANINGS = {
    "family": "what is computed around attention: attention (nothing), sinusoidal, rope, ...",
    "batch": "batch size",
    "heads": "query heads",
    "kv_heads": "key and value heads",
    "seq_q": "queries a head",
    "seq_k": "keys a head",
    "hdim": "head dim",
    "rotary_dim": "leading dims that RoPE rotates; 0 without RoPE",
    "dtype": "dtype of q, k, v and out",
    "causal": "whether query i sees only keys up to its own position",
    "q_offset": "position of the first query",
    "cache": "state of the key cache: none, rotated, raw",
    "table": "where the embedding comes from: computed, or a table of a dtype",
}
_KINDS = {"int": "integer", "str": "text", "bool": "flag"}
PROBLEM = tuple(Column(f.name, _KINDS[str(f.type)], _PROBLEM_MEANINGS[f.name]) for f in fields(Problem))

_RUN = Column("run", "text", "the measuring run, named by its start in UTC")
_STUDY = Column("study", "text", "the study (see analysis/measure/studies.py)")
_VERSION = Column("version", "text", "id of the kernel version or peer")
_SOURCE_HASH = Column("source_hash", "text", "hash of the code that made the version's kernels and launches")
_STATUS = Column("status", "text", "ok, wrong (as the version declares), infeasible, unsupported or error")
_REASON = Column("reason", "text", "why the status is not ok", optional=True)

SCHEMAS: dict[str, tuple[Column, ...]] = {
    "runs": (
        _RUN,
        _STUDY,
        Column("node", "text", "name of the machine"),
        Column("started_at", "text", "start, UTC"),
        Column("finished_at", "text", "end, UTC; empty while the run is incomplete", optional=True),
        Column("complete", "flag", "whether every row of the study was measured"),
        Column("seconds", "number", "wall time of the call that finished the run, s"),
        Column("driver", "text", "NVIDIA driver"),
        Column("cuda", "text", "CUDA version of torch"),
        Column("python", "text", "Python"),
        Column("numba", "text", "numba"),
        Column("numba_cuda", "text", "numba-cuda"),
        Column("torch", "text", "torch"),
        Column("sm_mhz_max", "integer", "highest SM clock the GPU allows, MHz"),
        Column("power_limit_w", "integer", "power limit, W"),
        Column("throttle", "text", "reasons for reduced clocks seen at the end of the processes; none if none"),
        Column("commit", "text", "commit of this project, with -dirty if other than measured files had changed"),
    ),
    "checks": (
        _RUN,
        _STUDY,
        _VERSION,
        *PROBLEM,
        Column("inputs", "text", "uniform (in [-1, 1], the source's) or sharp (scores with standard deviation 4)"),
        _STATUS,
        _REASON,
        Column("max_abs_err", "number", "largest absolute difference from float64 over finite outputs", optional=True),
        Column(
            "allowed_abs_err", "number", "4 times the error of fp32 math attention on the same inputs", optional=True
        ),
        Column("nan_share", "number", "share of outputs that are not finite", optional=True),
        _SOURCE_HASH,
        Column("measured_at", "text", "time, UTC"),
    ),
    "timings": (
        _RUN,
        Column("process", "integer", "process of the run, from 1"),
        _STUDY,
        _VERSION,
        *PROBLEM,
        _STATUS,
        _REASON,
        Column("timer", "text", "device_warm, device_cold or launched; empty where nothing could run", optional=True),
        Column("n", "integer", "samples", optional=True),
        Column("p20_us", "number", "20th percentile of the time of one call, us", optional=True),
        Column("median_us", "number", "median of the time of one call, us", optional=True),
        Column("p80_us", "number", "80th percentile of the time of one call, us", optional=True),
        Column("max_abs_err", "number", "largest absolute difference from float64 in this run's checks", optional=True),
        _SOURCE_HASH,
        Column("sm_mhz", "integer", "SM clock read after the samples, MHz", optional=True),
        Column("measured_at", "text", "time, UTC"),
    ),
    "published": (
        Column("id", "text", "N: printed in a document; X: from a log or source behind it"),
        Column("source_document", "text", "title of the document, or name of the log"),
        Column("locator", "text", "where in it"),
        Column("family", "text", "attention, sinusoidal, rope or fp16"),
        Column("version", "text", "id of the version, or the words of the document where there is none", optional=True),
        Column("baseline", "text", "what a speedup compares with, named like version", optional=True),
        Column("batch", "integer", "batch size", optional=True),
        Column("heads", "integer", "heads", optional=True),
        Column("seq_q", "integer", "queries", optional=True),
        Column("seq_k", "integer", "keys", optional=True),
        Column("hdim", "integer", "head dim", optional=True),
        Column("rotary_dim", "integer", "rotated dims", optional=True),
        Column("dtype", "text", "float32 or float16", optional=True),
        Column("gpu", "text", "GPU it was measured on", optional=True),
        Column("quantity", "text", "what is stated: time_ms, speedup, percent, tflops, ..."),
        Column("value", "number", "the stated value"),
        Column("unit", "text", "its unit; x_faster and x_slower say which way a speedup goes", optional=True),
        Column("sense", "text", "of a percentage that says which of two is ahead: faster or slower", optional=True),
        Column("limit", "text", "low or high: that end of a range; least or most: a bound", optional=True),
        Column("note", "text", "context", optional=True),
    ),
    "resources": (
        _VERSION,
        *PROBLEM,
        Column("launch", "integer", "which launch of the call, from 0"),
        Column("kernel", "text", "name of the kernel"),
        Column("target", "text", "compute target"),
        Column("registers", "integer", "registers a thread"),
        Column("spill_bytes", "integer", "bytes a thread spills, stores and loads together"),
        Column("stack_bytes", "integer", "bytes of stack a thread"),
        Column("shared_bytes", "integer", "bytes of shared memory a block"),
        Column("blocks_per_sm", "integer", "blocks that one SM holds at a time"),
        _SOURCE_HASH,
    ),
    "counters": (
        _RUN,
        _STUDY,
        _VERSION,
        *PROBLEM,
        Column("launch", "integer", "which launch of the call, from 0"),
        Column("kernel", "text", "name of the kernel"),
        Column("metric", "text", "name that Nsight Compute gives it; `, cold` where caches were flushed before"),
        Column("value", "number", "what was read in one launch"),
        Column("unit", "text", "its unit", optional=True),
        _SOURCE_HASH,
    ),
    "sanitizers": (
        _RUN,
        Column("tool", "text", "tool of compute-sanitizer: memcheck, racecheck, initcheck, synccheck"),
        _VERSION,
        *PROBLEM,
        Column(
            "finding",
            "text",
            "none, race, uninitialised, out_of_bounds, misaligned, divergent_barrier, divergent_warp; unparsed: a "
            "report that is not understood; not_checked: the silence says nothing; unsupported: not on this GPU",
        ),
        Column("kernel", "text", "kernel it was found in", optional=True),
        Column("place", "text", "buffer, or array of shared memory; shared: one that is not known", optional=True),
        Column("expected", "flag", "whether the version declares this hazard; 1 where there is none to declare"),
        _SOURCE_HASH,
    ),
    "counts": (
        _VERSION,
        *PROBLEM,
        Column("launch", "integer", "which launch of the call, from 0"),
        Column("target", "text", "compute target of the PTX that was executed"),
        Column("counter", "text", "what is counted, such as global.read.sectors (32 B each)"),
        Column("value", "number", "the count over all blocks of the launch"),
        _SOURCE_HASH,
    ),
    "verdicts": (
        Column("claim_id", "text", "the claim, as in claims.yml"),
        Column("verdict", "text", "of the claim: holds, holds in part, does not hold, cannot be decided"),
        Column("test", "integer", "which test of the claim, from 1; a row a test"),
        Column("role", "text", "test; premise or figure: what the claim takes for granted or states along with it"),
        Column("outcome", "text", "of the test, in the words of a verdict"),
        Column("says", "text", "what the test compares"),
        Column("rule", "text", "what the measured value must be: published, at least, at most, between, equals", True),
        Column("published", "number", "the number of the rule, where it is one", optional=True),
        Column("measured", "number", "the value: a ratio's geometric mean over the processes, or exact", optional=True),
        Column("low", "number", "lower end of its 95 % interval; empty where it is exact", optional=True),
        Column("high", "number", "upper end", optional=True),
        Column("unit", "text", "unit of these numbers", optional=True),
        Column("evidence", "text", "tables and runs that it is from; stale: versions whose code has changed", True),
        Column("reason", "text", "why the test cannot be decided", optional=True),
    ),
    "shapes": (
        Column("measured_at", "text", "time, UTC"),
        Column("commit", "text", "commit of this project, with -dirty if other than measured files had changed"),
        *PROBLEM,
        Column("core", "text", "wgmma (products of warpgroups) or mma (of warps), see kernels/v8"),
        Column("cluster", "integer", "blocks of a cluster, which share the head dim"),
        Column("queries", "integer", "queries of a tile"),
        Column("keys", "integer", "keys of a tile"),
        Column("width", "integer", "dims of a block's slice"),
        Column("warps", "integer", "warps of a block; 4 are a warpgroup"),
        Column("across", "integer", "of them, those that take different keys; of core mma alone", optional=True),
        Column("blocks_per_sm", "integer", "blocks that are meant to share an SM"),
        Column("once", "flag", "whether blocks that share keys embed these together first; of core wgmma alone"),
        Column(
            "cut",
            "text",
            "the change to the kernel, as analysis.measure.tune names it; empty for none",
            optional=True,
        ),
        Column("chosen", "flag", "whether rope_v8 takes this core and shape for the problem"),
        Column("blocks", "integer", "blocks of the launch", optional=True),
        Column("shared_bytes", "integer", "bytes of shared memory a block", optional=True),
        Column("registers", "integer", "registers a thread", optional=True),
        Column("status", "text", "ok, infeasible, unsupported, error, or wrong: a part is left out, not checked"),
        _REASON,
        Column("max_abs_err", "number", "largest absolute difference from float64, of the worse inputs", optional=True),
        Column("allowed_abs_err", "number", "4 times the error of fp32 math attention on them", optional=True),
        Column("median_us", "number", "median time of one call (device_warm), middle one of 3 repetitions, us", True),
        Column("p20_us", "number", "20th percentile of its samples, us", optional=True),
        Column("p80_us", "number", "80th percentile of its samples, us", optional=True),
        Column("source_hash", "text", "hash of the code that made the kernels and launches of rope_v8"),
    ),
    "mutations": (
        Column("mutant", "integer", "number of the mutant, in the order of the draw"),
        _VERSION,
        Column("kernel", "text", "the function that was broken: a kernel, or a device function that it calls"),
        Column(
            "operator",
            "text",
            "barrier, bound, exponent, scale, sine, mask or loop (see analysis.measure.mutations)",
        ),
        Column("line", "integer", "line of the function, whose def is line 1"),
        Column("original", "text", "first line of the statement; of a barrier also of the next one"),
        Column("mutated", "text", "what it was replaced with"),
        Column("outcome", "text", "caught or survived"),
        Column("by", "text", "what caught it: status, hazard, value, endless_loop or error", optional=True),
        Column("reason", "text", "why it survived, or the kind of error", optional=True),
        _SOURCE_HASH,
    ),
}


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
        for name in expected:
            if name not in header:
                raise DataError(f"{path}, line 1: column {name!r} is missing")
        for name in header:
            if name not in expected:
                raise DataError(f"{path}, line 1: column {name!r} is unknown; allowed: {', '.join(expected)}")
        by_name = {column.name: column for column in columns}
        parsers = [functools.cache(functools.partial(_parse, column=by_name[name])) for name in header]  # cells recur
        for cells in reader:
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
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


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


def append_rows(path: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows and force them to disk: all of them or, if the disk refuses, none.

    Raises:
        DataError: the rows could not be written; what was in the file is still there.
    """
    content = _lines(rows, table)
    if not path.exists() or path.stat().st_size == 0:
        content = ",".join(column.name for column in SCHEMAS[table]) + "\n" + content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab", buffering=0) as file:
            size = file.tell()
            try:
                data = content.encode()
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


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem that a row of data is about."""
    return Problem(**{name: row[name] for name in PROBLEM_COLUMNS})


def problem_columns(problem: Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in PROBLEM_COLUMNS}


def dictionary() -> str:
    """The text of data/README.md."""
    lines = [
        "# Data dictionary",
        "",
        "Written by `python -m analysis.records.files`. Tidy CSV, one observation a row;",
        "flags are 0 and 1; an empty cell means that the column does not apply. Files under `measured/` are",
        "written by the commands that measure alone.",
        "",
    ]
    places = {
        "runs": "measured/<gpu>/runs.csv",
        "checks": "measured/<gpu>/checks.csv",
        "timings": "measured/<gpu>/timings.csv",
        "published": "published.csv",
        "resources": "resources.csv",
        "counters": "measured/<gpu>/counters.csv",
        "sanitizers": "measured/<gpu>/sanitizers.csv",
        "counts": "counts.csv",
        "verdicts": "measured/<gpu>/verdicts.csv",
        "shapes": "measured/<gpu>/shapes.csv",
        "mutations": "mutations.csv",
    }
    for table, columns in SCHEMAS.items():
        lines += [f"## {places[table]}", "", "| column | kind | meaning |", "|---|---|---|"]
        lines += [f"| {c.name} | {c.kind}{', may be empty' if c.optional else ''} | {c.meaning} |" for c in columns]
        lines.append("")
    lines += [
        "## measured/&lt;gpu&gt;/gpu.json",
        "",
        "What the GPU is (name, compute capability, SMs, memory, L2) and `ceilings`, each measured on it:",
        "read_gb_s, write_gb_s, copy_gb_s (DRAM; a copy counts bytes read and written), l2_read_gb_s,",
        "fp32_tflops (fused multiply-adds, each counted as two), tensor_tflops (bfloat16 matrix product),",
        "empty_kernel_us (in a CUDA graph), empty_launch_us (bare driver launches back to back).",
        "",
        "## claims.yml",
        "",
        "What the documents claim and the tests that decide it; its head describes it. `make claims` writes",
        "`verdicts.csv` from it and from the tables above.",
        "",
        "## printed.yml",
        "",
        "What stands beside a row of published.csv where its columns do not say so: an expression, or why nothing",
        "can; its head describes it.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (DATA / "README.md").write_text(dictionary(), encoding="utf-8")
