"""Records without a GPU: counts by the emulator, resources and digests of kernels by the compiler.

Each of the commands counts, resources, launches and hashes writes the table of its name under data/. Rows of versions
whose code has not changed are kept; only the others are made anew.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import math
import multiprocessing
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from kernels import VERSIONS, Plan, Problem, Unsupported
from kernels.checking.reference import make_inputs
from kernels.device import mark
from kernels.runtime.compile import EMULATED_TARGET, TARGETS, blocks_per_sm, compile_ptx, require_instructions
from kernels.runtime.compile import resources as resources_of
from kernels.runtime.emulator import run
from kernels.version import PROBLEM_COLUMNS, Kernel

from ..evidence.current import Row, current, identity, today
from ..record import files
from ..record import rows as measured
from ..record.files import problem_columns, problem_of, read_records, read_table, write_table
from ..studies import Pair, own_pairs

WORKERS = 2


def _pair(row: Row) -> Pair:
    return row["version"], problem_of(row)


# ---------------------------------------------------------------- counts and resources


def work(plan: Plan, blocks: int | None = None) -> list[dict[str, int]]:
    """The counters of each launch of a plan; with `blocks`, those of its first blocks times the rest of the grid."""
    reports = run(plan, make_inputs(plan.problem, "uniform"), schedule="in step", blocks=blocks).launches
    shares = [math.prod(launch.grid) / blocks if blocks else 1 for launch in plan.launches]
    return [
        {counter: round(value * share) for counter, value in report.counts.items()}
        for report, share in zip(reports, shares, strict=True)
    ]


def count(name: str, problem: Problem) -> list[Row]:
    """A row for each launch and counter of version `name` on `problem`; none where it is unsupported.

    In a process where marks are enabled, events (`kernels.device.mark`) alone, by kernels compiled with marks. Those of
    the documents are counted in one block, since at the published shapes all blocks do the same.
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
    columns = {"version": name, **problem_columns(problem), "target": EMULATED_TARGET, "source_hash": today(name)}
    return [
        {**columns, "launch": index, "counter": counter, "value": value}
        for index, counts in enumerate(launches)
        for counter, value in sorted(counts.items())
    ]


def compiled(name: str, problem: Problem) -> list[Row]:
    """A row for each launch and target of version `name` on `problem`, as it is planned for that target.

    There is none where the version is unsupported or the target lacks its instructions.
    """
    rows = []
    for target in TARGETS:
        with contextlib.suppress(Unsupported):
            for index, launch in enumerate(VERSIONS[name](problem, target).launches):
                with contextlib.suppress(Unsupported):
                    require_instructions(launch.kernel, target)
                    used = resources_of(launch.kernel, target)
                    own = {
                        "launch": index, "kernel": launch.kernel.name, "target": target, "registers": used.registers,
                        "spill_bytes": used.spill_bytes, "stack_bytes": used.stack_bytes,
                        "shared_bytes": launch.dynamic_bytes + used.static_shared_bytes,
                        "blocks_per_sm": blocks_per_sm(launch, target),
                    }  # fmt: skip
                    rows.append({"version": name, **problem_columns(problem), **own, **identity(name)})
    return rows


def _write(table: str, rows: list[Row]) -> int:
    path = files.DATA / f"{table}.csv"
    write_table(path, table, rows)
    print(f"[{table}] {len(rows)} rows in {path}")
    return 0


def update(
    table: str, arguments: list[str], key: Callable[[Row], Any], *passes: tuple[Callable[..., list[Row]], Any],
    pairs: Callable[[], list[Pair]] = own_pairs,
) -> int:  # fmt: skip
    """Bring data/<table>.csv up to date. A pass: what makes the rows of a pair, and what prepares its processes."""
    parser = argparse.ArgumentParser(prog=f"python -m analysis {table}")
    parser.parse_args(arguments)
    rows = current(read_records(files.DATA / f"{table}.csv", table))
    if table == "resources" and {row["target"] for row in rows} != set(TARGETS):
        rows = []
    done = {_pair(row) for row in rows}
    todo = [pair for pair in pairs() if pair not in done]
    for make, prepare in passes if todo else ():
        with ProcessPoolExecutor(min(WORKERS, len(todo)), multiprocessing.get_context("spawn"), prepare) as pool:
            made = pool.map(make, *zip(*todo, strict=True))
            rows += [row for group in tqdm(made, total=len(todo), desc=table) for row in group]
    return _write(table, sorted(rows, key=key))


def counts(arguments: list[str]) -> int:
    place = {name: position for position, name in enumerate(VERSIONS)}

    def key(row: Row) -> Any:
        return place[row["version"]], str(problem_of(row)), row["launch"], row["counter"]

    return update("counts", arguments, key, (count, None), (count, mark.enable))


def resources(arguments: list[str]) -> int:
    place = {pair: position for position, pair in enumerate(own_pairs())}
    return update("resources", arguments, lambda row: place.get(_pair(row), len(place)), (compiled, None))


# ---------------------------------------------------------------- digests of kernels, and hashes of their code

NAME = re.compile(r"\b_(?:Z|cudapy_)[\w$]+")
ENVIRONMENT = re.compile(r"^\.common .*NumbaEnv.*\n", re.MULTILINE)  # declared, never read
HEAD = re.compile(r"\A(?://.*\n)+\n\.version .*")  # the compiler's name; digests were recorded with that of CUDA 13.0
RECORDED_HEAD = """//
// Generated by NVIDIA NVVM Compiler
//
// Compiler Build ID: CL-36424714
// Cuda compilation tools, release 13.0, V13.0.88
// Based on NVVM 7.0.1
//

.version 9.0"""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def without_names(ptx: str) -> str:
    """PTX without the release of CUDA; mangled names, which hold a module's path, are numbered by their first use."""
    numbers: dict[str, str] = {}
    bare = HEAD.sub(RECORDED_HEAD, ENVIRONMENT.sub("", ptx))
    return NAME.sub(lambda match: numbers.setdefault(match[0], f"name{len(numbers)}"), bare)


@functools.cache
def _ptx_digest(kernel: Kernel) -> str:
    return _digest(without_names(compile_ptx(kernel, kernel.architecture or EMULATED_TARGET)))


def kernels_of(version: str, problem: Problem) -> tuple[Kernel, ...]:
    """The kernels of a call, in the order of its launches; none where the problem is refused, and of a peer."""
    try:
        return tuple(launch.kernel for launch in VERSIONS[version](problem).launches)
    except Unsupported:
        return ()


def ptx_of(version: str, problem: Problem) -> str:
    """A digest of the PTX of every launch, for the target that the emulator runs or the kernel's own architecture."""
    return _digest(" ".join(_ptx_digest(kernel) for kernel in kernels_of(version, problem)))


def differing(rows: list[Row]) -> list[str]:
    """The rows of launches.csv that today's kernels contradict."""
    found = ((row, ptx_of(*_pair(row))) for row in rows)
    return [f"{row['version']} on {problem_of(row)}: {row['ptx']} is {ptx}" for row, ptx in found if ptx != row["ptx"]]


def recorded_pairs() -> list[Pair]:
    """The versions and problems of every row that was checked, counted or compiled."""
    found = [read_table(files.COUNTS, "counts"), read_table(files.RESOURCES, "resources")]
    found += [measured(gpu, "checks") for gpu in files.known_gpus()]
    pairs = pd.concat(frame[["version", *PROBLEM_COLUMNS]] for frame in found)
    rows = pairs.drop_duplicates().to_dict("records")
    return sorted(_pair(row) for row in rows if row["version"] in VERSIONS)


def record(kept: list[Row]) -> list[Row]:
    """Rows of today's code, and a row for every other kernel of a recorded problem."""
    rows = {(row["version"], row["ptx"]): row for row in kept}
    met = {(row["version"], kernels_of(*_pair(row))) for row in kept}
    for name, problem in tqdm(recorded_pairs(), unit="pair"):
        kernels = kernels_of(name, problem)
        if kernels and (name, kernels) not in met:
            met.add((name, kernels))
            ptx = ptx_of(name, problem)
            row = {"version": name, **problem_columns(problem), "ptx": ptx, "source_hash": today(name)}
            rows.setdefault((name, ptx), row)
    return sorted(rows.values(), key=_pair)


def launches(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis launches")
    parser.add_argument("--check", action="store_true", help="compile every recorded kernel again: half an hour")
    kept = current(read_records(files.LAUNCHES, "launches"))
    if parser.parse_args(arguments).check:
        found = differing(tqdm(kept, unit="kernel"))
        print("\n".join([f"[launches] {len(found)} of {len(kept)} kernels differ", *found]))
        return int(bool(found))
    return _write("launches", record(kept))


HASHES_OF_A_CHECKOUT = """
import json
from kernels import VERSIONS
from kernels.runtime.identity import source_hash
print(json.dumps({name: source_hash(version) for name, version in VERSIONS.items()}))
"""


def hashes(arguments: list[str]) -> int:
    """For a commit that changes hashes and no kernel, which `launches --check` and a sample in the tests then show."""
    parser = argparse.ArgumentParser(prog="python -m analysis hashes")
    parser.add_argument("before", type=Path, help="a checkout of the commit before the change")
    parser.add_argument("versions", nargs="*", help="only these, whose kernels the change left alone (default: all)")
    options = parser.parse_args(arguments)
    command = [sys.executable, "-c", HASHES_OF_A_CHECKOUT]
    done = subprocess.run(command, cwd=options.before, stdout=subprocess.PIPE, text=True, check=True)
    chosen = set(options.versions or VERSIONS) & set(VERSIONS)
    before = {name: old for name, old in json.loads(done.stdout).items() if name in chosen and old != today(name)}
    later = {old: today(name) for name, old in before.items()}
    rows = [{**row, "new": later.get(row["new"], row["new"])} for row in read_records(files.HASHES, "hashes")]
    known = {row["old"] for row in rows}
    rows += [{"old": old, "new": later[old], "version": name} for name, old in before.items() if old not in known]
    return _write("hashes", rows)
