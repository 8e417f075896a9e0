"""Exact counts of what the kernels do, from the emulator: `python -m analysis counts` writes data/counts.csv.

Needs no GPU. Rows of versions whose code has not changed are kept.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tqdm import tqdm

from kernels import VERSIONS, Problem, Unsupported
from kernels.reference import make_inputs
from kernels.runtime.compile import EMULATED_TARGET
from kernels.runtime.emulator import run
from kernels.runtime.identity import source_hash

from .data import COUNTS, DataError, problem_columns, problem_of, read_table, write_table
from .studies import STUDIES, study

WORKERS = 2


def count(name: str, problem: Problem) -> list[dict[str, Any]]:
    """One row per launch and counter of version `name` on `problem`; none where it is unsupported."""
    try:
        plan = VERSIONS[name](problem)
    except Unsupported:
        return []
    columns = {
        "version": name,
        **problem_columns(problem),
        "target": EMULATED_TARGET,
        "source_hash": source_hash(VERSIONS[name]),
    }
    return [
        {**columns, "launch": index, "counter": counter, "value": value}
        for index, report in enumerate(run(plan, make_inputs(problem, "uniform"), schedule="in step").launches)
        for counter, value in sorted(report.counts.items())
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis counts", description=__doc__.splitlines()[0])
    parser.add_argument("--study", default="log", help=f"one of: {', '.join(STUDIES)}")
    options = parser.parse_args(arguments)
    try:
        pairs = [(v.id, problem) for v, problem in study(options.study).pairs() if not v.is_peer]
        kept = read_table(COUNTS, "counts").to_dict("records") if COUNTS.exists() else []
    except (DataError, ValueError) as error:
        print(f"counts: {error}", file=sys.stderr)
        return 1
    kept = [
        row
        for row in kept
        if row["version"] in VERSIONS and row["source_hash"] == source_hash(VERSIONS[row["version"]])
    ]
    done = {(row["version"], problem_of(row)) for row in kept}
    todo = [pair for pair in pairs if pair not in done]
    with ProcessPoolExecutor(WORKERS) as pool:
        rows = list(tqdm(pool.map(count, *zip(*todo, strict=True)), total=len(todo), desc="count") if todo else ())
    kept += [row for group in rows for row in group]
    order = {name: position for position, name in enumerate(VERSIONS)}
    kept.sort(key=lambda row: (order[row["version"]], str(problem_of(row)), row["launch"], row["counter"]))
    write_table(COUNTS, "counts", kept)
    print(f"[counts] {len(kept)} rows in {COUNTS}")
    return 0
