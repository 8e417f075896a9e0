"""What the kernels take on every target, from the compiler: `python -m analysis resources` writes data/resources.csv.

Needs no GPU. What is compiled for a target is what is planned for it. A kernel has no row for a target that lacks its
instructions; one of which no block fits has 0 blocks per SM. Rows of versions whose code has not changed are kept, as
long as they are of today's targets.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tqdm import tqdm

from kernels import VERSIONS, Problem, Unsupported
from kernels.runtime.compile import TARGETS, blocks_per_sm, require_instructions, resources

from ...records.current import current, today
from ...records.files import RESOURCES, DataError, problem_columns, problem_of, read_records, write_table
from ..studies import PUBLISHED, STUDIES, own_pairs

WORKERS = 2


def report(name: str, problem: Problem) -> list[dict[str, Any]]:
    """One row per launch and target of version `name` on `problem`; none where it is unsupported."""
    rows = []
    for target in TARGETS:
        try:
            launches = VERSIONS[name](problem, target).launches
        except Unsupported:
            continue
        for index, launch in enumerate(launches):
            try:
                require_instructions(launch.kernel, target)
            except Unsupported:
                continue
            used = resources(launch.kernel, target)
            rows.append(
                {
                    "version": name,
                    **problem_columns(problem),
                    "launch": index,
                    "kernel": launch.kernel.name,
                    "target": target,
                    "registers": used.registers,
                    "spill_bytes": used.spill_bytes,
                    "stack_bytes": used.stack_bytes,
                    "shared_bytes": launch.dynamic_bytes + used.static_shared_bytes,
                    "blocks_per_sm": blocks_per_sm(launch, target),
                    "source_hash": today(name),
                }
            )
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis resources", description=__doc__.splitlines()[0])
    parser.add_argument("--study", default=PUBLISHED, help=f"some of, separated by commas: {', '.join(STUDIES)}")
    options = parser.parse_args(arguments)
    try:
        pairs = own_pairs(options.study)
        kept = current(read_records(RESOURCES, "resources"))
    except (DataError, ValueError) as error:
        print(f"resources: {error}", file=sys.stderr)
        return 1
    groups: dict[tuple[str, Problem], list[dict[str, Any]]] = {}
    if {row["target"] for row in kept} != set(TARGETS):
        kept = []
    for row in kept:
        groups.setdefault((row["version"], problem_of(row)), []).append(row)
    todo = [pair for pair in pairs if pair not in groups]
    with ProcessPoolExecutor(WORKERS) as pool:
        rows = tqdm(pool.map(report, *zip(*todo, strict=True)), total=len(todo), desc="assemble") if todo else ()
        groups.update(zip(todo, rows, strict=True))
    order = dict.fromkeys([*own_pairs(PUBLISHED), *groups])  # rows of other studies stay
    found = [row for pair in order for row in groups.get(pair, ())]
    write_table(RESOURCES, "resources", found)
    print(f"[resources] {len(found)} rows in {RESOURCES}")
    return 0
