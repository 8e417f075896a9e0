"""Exact counts of what the kernels do, from the emulator: `python -m analysis counts` writes data/counts.csv.

Needs no GPU. Every block is executed and counted. Events (`kernels.device.mark`) are counted by kernels compiled with
marks: those of the documents in one block, multiplied by the blocks, which all do the same at the published shapes.
Rows of versions whose code has not changed are kept.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tqdm import tqdm

from kernels import VERSIONS, Plan, Problem, Unsupported
from kernels.checking.reference import make_inputs
from kernels.device import mark
from kernels.runtime.compile import EMULATED_TARGET, compile_ptx
from kernels.runtime.emulator import run

from ...records.current import current, today
from ...records.files import COUNTS, DataError, problem_columns, problem_of, read_records, write_table
from ..studies import PUBLISHED, STUDIES, own_pairs

WORKERS = 2


def work(plan: Plan, blocks: int | None = None) -> list[dict[str, int]]:
    """What each launch of a plan does; with `blocks`, that of its first blocks times the rest of the grid."""
    reports = run(plan, make_inputs(plan.problem, "uniform"), schedule="in step", blocks=blocks).launches
    if blocks is None:
        return [report.counts for report in reports]
    shares = [math.prod(launch.grid) / blocks for launch in plan.launches]
    return [
        {counter: round(value * share) for counter, value in report.counts.items()}
        for report, share in zip(reports, shares, strict=True)
    ]


def count(name: str, problem: Problem) -> list[dict[str, Any]]:
    """One row per launch and counter of version `name` on `problem`; none where it is unsupported.

    In a process where marks are enabled, the events and nothing else.
    """
    try:
        plan = VERSIONS[name](problem)
    except Unsupported:
        return []
    if mark.enabled():
        if not any("mark." in compile_ptx(launch.kernel) for launch in plan.launches):
            return []
        blocks = None if VERSIONS[name].beyond else 1
        launches = [{c: n for c, n in counts.items() if c.startswith("event.")} for counts in work(plan, blocks)]
    else:
        launches = work(plan)
    columns = {
        "version": name,
        **problem_columns(problem),
        "target": EMULATED_TARGET,
        "source_hash": today(name),
    }
    return [
        {**columns, "launch": index, "counter": counter, "value": value}
        for index, counts in enumerate(launches)
        for counter, value in sorted(counts.items())
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis counts", description=__doc__.splitlines()[0])
    parser.add_argument("--study", default=PUBLISHED, help=f"some of, separated by commas: {', '.join(STUDIES)}")
    options = parser.parse_args(arguments)
    try:
        pairs = own_pairs(options.study)
        kept = current(read_records(COUNTS, "counts"))
    except (DataError, ValueError) as error:
        print(f"counts: {error}", file=sys.stderr)
        return 1
    done = {(row["version"], problem_of(row)) for row in kept}
    todo = [pair for pair in pairs if pair not in done]
    for what, prepare in (("count", None), ("events", mark.enable)):
        with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn"), prepare) as pool:
            rows = tqdm(pool.map(count, *zip(*todo, strict=True)), total=len(todo), desc=what) if todo else ()
            kept += [row for group in rows for row in group]
    order = {name: position for position, name in enumerate(VERSIONS)}
    kept.sort(key=lambda row: (order[row["version"]], str(problem_of(row)), row["launch"], row["counter"]))
    write_table(COUNTS, "counts", kept)
    print(f"[counts] {len(kept)} rows in {COUNTS}")
    return 0
