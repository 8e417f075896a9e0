"""Would the tests notice a mistake? `python -m analysis mutations` breaks kernels and writes data/mutations.csv.

A mutant is caught when `faults`, which the tests ask of every version, finds something on one of its quick cases, those
of `make test`. The mutants are a seeded draw, spread over versions; one that does not compile, or compiles to the
original's very code, is drawn again. Of what survives, the reason is in `EXPLAINED`, or missing.

Needs no GPU.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from tqdm import tqdm

from kernels import VERSIONS
from kernels.ablations import fast_math
from kernels.checking.check import OWN, faults, quick_cases
from kernels.runtime import compile as compiler
from kernels.runtime.emulator import execute
from kernels.runtime.identity import source_hash
from kernels.version import Kernel

from ...records.files import MUTATIONS, write_table
from .explained import EXPLAINED
from .mutants import Mutant, broken, mutants, rebuilt

COUNT = 100
SEED = 42
WORKERS = 2
ENDLESS = 400_000  # straight lines of code in a launch


class Broken:
    """PTX of a version's kernels with a mutant's mistake in them."""

    def __init__(self, mutant: Mutant) -> None:
        self.place = mutant.place
        self.changed = broken(mutant.place, mutant.site)
        self.texts: dict[Kernel, str] = {}

    def __call__(self, kernel: Kernel) -> str:
        if kernel not in self.texts:
            function = rebuilt(kernel.function, self.place, self.changed)
            if function is kernel.function:
                self.texts[kernel] = compiler.compile_ptx(kernel)
            else:
                self.texts[kernel] = compiler._numba_ptx(replace(kernel, function=function), compiler.EMULATED_TARGET)
        return self.texts[kernel]


def unnamed(ptx: str) -> str:
    """PTX without the mangled names, which count the functions that a process has compiled."""
    return re.sub(r"_ZN\w+", "", ptx)


def judge(mutant: Mutant) -> dict[str, str] | None:
    """What becomes of a mutant; None if it does not compile, or to the very code of the original."""
    sys.modules[execute.__module__].ENDLESS = ENDLESS  # type: ignore[attr-defined]
    version = VERSIONS[mutant.version]
    ptx_of = Broken(mutant)
    kernels = {launch.kernel for case in quick_cases(version) for launch in version(case.problem).launches}
    try:
        same = all(unnamed(ptx_of(kernel)) == unnamed(compiler.compile_ptx(kernel)) for kernel in kernels)
    except Exception:  # whatever stage of the compiler refused it
        return None
    if same:
        return None
    users = [version, *([VERSIONS[version.variant_of]] if version.variant_of else [])]  # of the code that is broken
    for user, case in [(each, case) for each in users for case in quick_cases(each)]:
        try:
            found = faults(user, *case, ptx_of=ptx_of)
        except Exception as error:
            return {"outcome": "caught", "by": "error", "reason": type(error).__name__}
        if found:
            return {"outcome": "caught", "by": found[0].by}
    return {"outcome": "survived", "by": "", "reason": EXPLAINED.get(mutant.key, "")}


def drawn(seed: int = SEED) -> Iterator[Mutant]:
    """All mutants in the order of the draw: rounds over the versions, of each one mutant.

    Code that versions share is broken once. Fast-math builds have no code of their own, controls none in
    Python; of what goes beyond the documents, whose kernels take seconds to compile, every barrier is broken instead,
    by `make test-deep`.
    """
    rng, drawn_before = random.Random(seed), set()
    written = (v.id for v in OWN if v.of_log and v.module != fast_math.__name__)
    left = {name: list(mutants(name)) for name in written}
    while left:
        for name in rng.sample(sorted(left), len(left)):
            mutant = left[name].pop(rng.randrange(len(left[name])))
            if not left[name]:
                del left[name]
            if (mutant.place, mutant.site) not in drawn_before:
                drawn_before.add((mutant.place, mutant.site))
                yield mutant


def row(number: int, mutant: Mutant, result: dict[str, str]) -> dict[str, Any]:
    return {
        "mutant": number,
        "version": mutant.version,
        "kernel": mutant.function,
        "operator": mutant.operator,
        "line": mutant.line,
        "original": mutant.original,
        "mutated": mutant.mutated,
        **result,
        "source_hash": source_hash(VERSIONS[mutant.version]),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis mutations", description=__doc__.splitlines()[0])
    parser.parse_args(arguments)
    queue = drawn()
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(WORKERS) as pool, tqdm(total=COUNT, desc="mutants") as progress:
        while len(rows) < COUNT:
            candidates = [mutant for mutant, _ in zip(queue, range(COUNT - len(rows)))]
            if not candidates:
                break
            for mutant, result in zip(candidates, pool.map(judge, candidates), strict=True):
                if result is not None:
                    rows.append(row(len(rows) + 1, mutant, result))
                    progress.update()
    write_table(MUTATIONS, "mutations", rows)
    survivors = [r for r in rows if r["outcome"] == "survived"]
    print(f"[mutations] {len(rows) - len(survivors)} of {len(rows)} caught; {MUTATIONS}")
    for r in survivors:
        place = f"{r['version']}, {r['kernel']}, line {r['line']}"
        print(f"  {place}: {r['operator']}: {r['original']} -> {r['mutated']}: {r['reason'] or 'not explained'}")
    return 0
