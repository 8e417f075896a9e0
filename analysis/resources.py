"""What the kernels take on every target, from the compiler: `python -m analysis resources` writes data/resources.csv.

Needs no GPU. A kernel has no row for a target that lacks its instructions.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tqdm import tqdm

from kernels import VERSIONS, Problem, Unsupported
from kernels.runtime.compile import TARGETS, CompileError, blocks_per_sm, resources
from kernels.runtime.identity import source_hash

from .data import RESOURCES, problem_columns, write_table
from .studies import PUBLISHED, STUDIES, own_pairs

WORKERS = 2


def report(name: str, problem: Problem) -> list[dict[str, Any]]:
    """One row per launch and target of version `name` on `problem`; none where it is unsupported."""
    try:
        launches = VERSIONS[name](problem).launches
    except Unsupported:
        return []
    rows = []
    for index, launch in enumerate(launches):
        for target in TARGETS:
            try:
                used = resources(launch.kernel, target)
            except CompileError:
                continue
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
                    "shared_bytes": launch.shared_bytes + used.static_shared_bytes,
                    "blocks_per_sm": blocks_per_sm(launch, target),
                    "source_hash": source_hash(VERSIONS[name]),
                }
            )
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis resources", description=__doc__.splitlines()[0])
    parser.add_argument("--study", default=PUBLISHED, help=f"some of, separated by commas: {', '.join(STUDIES)}")
    options = parser.parse_args(arguments)
    pairs = own_pairs(options.study)
    with ProcessPoolExecutor(WORKERS) as pool:
        groups = list(tqdm(pool.map(report, *zip(*pairs, strict=True)), total=len(pairs), desc="assemble"))
    write_table(RESOURCES, "resources", (row for group in groups for row in group))
    print(f"[resources] {sum(map(len, groups))} rows in {RESOURCES}")
    return 0
