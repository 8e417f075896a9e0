"""`python -m analysis launches`: digests of what every recorded version launches, to show that a move changed nothing.

data/launches.csv has a row for every pair of a version and a problem that anything was recorded of. A row of it is
compared while its version's hash is today's: then the plan has to be refused as it was, or to launch the same.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import re
from typing import Any

import pandas as pd
from tqdm import tqdm

from kernels import VERSIONS, Plan, Problem, Unsupported
from kernels.runtime.compile import EMULATED_TARGET, compile_ptx
from kernels.version import PROBLEM_COLUMNS, Kernel, Launch

from ...records.current import is_current, today
from ...records.files import (
    COUNTS,
    LAUNCHES,
    MEASURED,
    RESOURCES,
    known_gpus,
    problem_columns,
    problem_of,
    read_records,
    read_table,
    write_table,
)

REFUSED, CALLED = "unsupported", "call"  # in place of a digest: of a problem that is not taken, and of a peer
NAME = re.compile(r"\b_(?:Z|cudapy_)[\w$]+")
ENVIRONMENT = re.compile(r"^\.common .*NumbaEnv.*\n", re.MULTILINE)  # declared, never read


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _text(value: Any) -> str:
    """Of an argument: a buffer's name, or a number, whichever library's."""
    return value if isinstance(value, str) else repr(value.item() if hasattr(value, "item") else value)


def _step(step: Any) -> str:
    if not isinstance(step, Launch):
        return "sync"
    arguments = [_text(value) for value in step.args]
    return f"{step.kernel.name} {step.grid} {step.block} {step.cluster} {step.shared_bytes} {arguments}"


def launches_of(plan: Plan) -> str:
    """A digest of the buffers, and of name, grid, block, cluster, shared bytes and arguments of every launch."""
    if plan.call is not None:
        return CALLED
    buffers = [f"{name} {tuple(map(int, b.shape))} {b.dtype} {b.padding}" for name, b in plan.buffers.items()]
    return _digest("\n".join([*sorted(buffers), *map(_step, plan.steps)]))


def without_names(ptx: str) -> str:
    """PTX with mangled names, which say where a function lies, replaced by numbers in order of their first use."""
    numbers: dict[str, str] = {}
    return NAME.sub(lambda match: numbers.setdefault(match[0], f"name{len(numbers)}"), ENVIRONMENT.sub("", ptx))


@functools.cache
def _ptx_digest(kernel: Kernel) -> str:
    return _digest(without_names(compile_ptx(kernel, kernel.architecture or EMULATED_TARGET)))


def ptx_of(plan: Plan) -> str:
    """A digest of the PTX of every launch, for the target that the emulator runs or the kernel's own architecture."""
    return _digest(" ".join(_ptx_digest(launch.kernel) for launch in plan.launches)) if plan.launches else ""


def plan_of(version: str, problem: Problem) -> Plan | None:
    """None where it is refused."""
    try:
        return VERSIONS[version](problem)
    except Unsupported:
        return None


def recorded_pairs() -> pd.DataFrame:
    """Versions and problems, as columns, of every row that was measured, counted or compiled."""
    measured = [
        (MEASURED / gpu / f"{table}.csv", table)
        for gpu in known_gpus()
        for table in ("checks", "timings", "counters", "sanitizers")
    ]
    files = [(COUNTS, "counts"), (RESOURCES, "resources"), *measured]
    pairs = [read_table(path, table)[["version", *PROBLEM_COLUMNS]] for path, table in files if path.exists()]
    return pd.concat(pairs).drop_duplicates()


def record(version: str, problem: Problem) -> dict[str, Any]:
    """A row of launches.csv."""
    plan = plan_of(version, problem)
    digests = {"launches": launches_of(plan), "ptx": ptx_of(plan)} if plan else {"launches": REFUSED}
    return {"version": version, **problem_columns(problem), "source_hash": today(version), **digests}


def main(arguments: list[str]) -> int:
    argparse.ArgumentParser(prog="python -m analysis launches", description=__doc__).parse_args(arguments)
    kept = {
        (row["version"], problem_of(row)): row
        for row in read_records(LAUNCHES, "launches")
        if is_current(row["version"], row["source_hash"])
    }
    pairs = sorted((row["version"], problem_of(row)) for row in recorded_pairs().to_dict("records"))
    rows = [kept.get(pair) or record(*pair) for pair in tqdm(pairs, unit="pair") if pair[0] in VERSIONS]
    write_table(LAUNCHES, "launches", rows)
    print(f"[launches] {len(rows)} rows in {LAUNCHES}")
    return 0
