"""A problem as one cell of a table, by its name, and as the columns that stand for it in a frame."""

import functools
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from kernels.version import DTYPES, PROBLEM_COLUMNS, Problem

NAME = re.compile(
    r"(?P<family>[a-z0-9]+)-b(?P<batch>\d+)-h(?P<heads>\d+)(?:-kv(?P<kv_heads>\d+))?-s(?P<seq_q>\d+)"
    r"(?:-k(?P<seq_k>\d+))?-d(?P<hdim>\d+)(?:-r(?P<rotary_dim>\d+))?(?:-o(?P<q_offset>-?\d+))?"
    rf"(?:-(?P<dtype>{'|'.join(DTYPES)}))?(?P<causal>-causal)?(?:-cache_rotated)?(?:-table_(?P<table>\w+))?"
)


@functools.cache
def name_of(*values: Any) -> str:
    """The name of a problem by the values of its columns: "rope-b1-h4-s64-d2048-r128"; usual values are left out."""
    family, batch, heads, kv_heads, seq_q, seq_k, hdim, rotary_dim, dtype, causal, q_offset, table = values
    parts = [family, f"b{batch}", f"h{heads}", f"kv{kv_heads}" if kv_heads != heads else "", f"s{seq_q}"]
    parts += [f"k{seq_k}" if seq_k != seq_q else "", f"d{hdim}", f"r{rotary_dim}" if rotary_dim else ""]
    parts += [f"o{q_offset}" if q_offset != seq_k - seq_q else "", dtype if dtype != "float32" else ""]
    parts += ["causal" if causal else "", f"table_{table}" if table != "computed" else ""]
    return "-".join(filter(None, parts))


@functools.cache
def values_of(name: str) -> tuple[Any, ...]:
    """The values of its columns by the name of a problem; rows of peers that are gone may have "-cache_rotated"."""
    found = NAME.fullmatch(name)
    if not found:
        raise ValueError(f"{name!r} names no problem")
    said = found.groupdict()
    count = {key: int(value) for key, value in said.items() if value and value.lstrip("-").isdigit()}
    heads, seq_q = count["heads"], count["seq_q"]
    seq_k = count.get("seq_k", seq_q)
    return (
        said["family"], count["batch"], heads, count.get("kv_heads", heads), seq_q, seq_k, count["hdim"],
        count.get("rotary_dim", 0), said["dtype"] or "float32", bool(said["causal"]),
        count.get("q_offset", seq_k - seq_q), said["table"] or "computed",
    )  # fmt: skip


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
