"""Search the shapes of V8 on the GPU at hand.

    python -m analysis tune                  what is not measured yet of today's code
    python -m analysis tune --list           what would be measured; needs no GPU

RoPE attention is checked on both inputs and timed (device_warm) in every shape that its rule could have chosen and in
the neighbours, on both cores that need clusters. Three repetitions in random order are enough for a search; what is
claimed of a version is measured by `python -m analysis measure`. Rows with a `cut` are of a past audit, which changed
lines of the kernel: they stay, and no command measures them again.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver

from kernels import Problem, Unsupported
from kernels.checking.reference import INPUTS, reference_of
from kernels.runtime.compile import CompileError, assembled, compile_ptx, require_target
from kernels.runtime.gpu import GpuError, Program, device_target, load_ptx
from kernels.version import Plan

from ..records import cards
from ..records.current import current, today
from ..records.files import (
    DataError,
    append_rows,
    problem_columns,
    problem_of,
    read_records,
    read_table,
    write_table,
)
from .candidates import VERSION, Candidate, candidates
from .machine import environment, identity, now, warm_up
from .on_gpu import TIMED_INPUTS
from .progress import tqdm
from .provenance import commit
from .timing import Timing, device_warm
from .workers import compile_each

DEVICE = "cuda"
REPETITIONS = 3
SEED = 8


def _compile(candidate: Candidate, target: str) -> None:
    # What cannot be planned or compiled is said by the row.
    with contextlib.suppress(Unsupported, CompileError):
        launch = candidate.plan().launches[0]
        require_target(launch, target)
        assembled(compile_ptx(launch.kernel, target), target)


def compile_all(chosen: Sequence[Candidate], target: str) -> None:
    """Fill the cache of compiled kernels, several at a time; each kernel once."""
    kernels = {(each.core, each.shape): each for each in chosen}
    compile_each(_compile, list(kernels.values()), target)


def _inputs(problem: Problem, kind: str) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(x).to(DEVICE) for name, x in reference_of(problem, kind, DEVICE).inputs.items()}


def _registers(plan: Plan) -> int:
    """Registers a thread of the plan's kernel, as the driver says."""
    function = load_ptx(compile_ptx(plan.launches[0].kernel, device_target()))
    code, registers = driver.cuFuncGetAttribute(driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, function)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise GpuError(f"the CUDA driver answered {code.name}")
    return int(registers)


def _checked(candidate: Candidate, inputs: dict[str, dict[str, torch.Tensor]]) -> tuple[dict[str, Any], Program | None]:
    """The columns of a check on both inputs, and the program to time: none where it may not be timed."""
    found: dict[str, Any] = {}
    programs = {}
    try:
        plan = candidate.plan()
        launch = plan.launches[0]
        found = {"blocks": math.prod(launch.grid), "shared_bytes": launch.shared_bytes}
        require_target(launch, device_target())
        found["registers"] = _registers(plan)
        verdicts = []
        for kind in INPUTS:
            programs[kind] = Program(plan, inputs[kind])
            verdicts.append(reference_of(candidate.problem, kind, DEVICE).compare(programs[kind].output()))
    except Unsupported as refusal:
        return {**found, "status": refusal.status, "reason": str(refusal)}, None
    except (CompileError, GpuError) as error:
        return {**found, "status": "error", "reason": str(error).splitlines()[0]}, None
    worst = max(verdicts, key=lambda verdict: (verdict.status != "ok", verdict.max_abs_err / verdict.allowed_abs_err))
    found |= {"max_abs_err": worst.max_abs_err, "allowed_abs_err": worst.allowed_abs_err}
    if worst.status != "ok":
        reason = f"max_abs_err {worst.max_abs_err:.3g}, allowed {worst.allowed_abs_err:.3g}, NaN {worst.nan_share:.3g}"
        return {**found, "status": "error", "reason": reason}, None
    return {**found, "status": "ok"}, programs[TIMED_INPUTS]


def measured(problem: Problem, chosen: Sequence[Candidate]) -> Iterator[dict[str, Any]]:
    """A row for every candidate of one problem: checked, then timed in turns, each turn in an order of its own.

    Raises: GpuError after the row of a candidate that leaves the GPU in no state to go on.
    """
    inputs = {kind: _inputs(problem, kind) for kind in INPUTS}
    where = {"measured_at": now(), "commit": commit(), "source_hash": today(VERSION)}
    outcomes = []
    for candidate in chosen:
        try:
            outcomes.append(_checked(candidate, inputs))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            yield {**where, **candidate.columns(), "status": "error", "reason": reason}
            raise GpuError(f"{candidate}: {reason}; the next call goes on without it") from error
    timings: dict[int, list[Timing]] = {i: [] for i, (_, program) in enumerate(outcomes) if program}
    dice = random.Random(SEED)
    for _ in range(REPETITIONS):
        for i in dice.sample(list(timings), len(timings)):
            timings[i].append(device_warm(outcomes[i][1]))  # type: ignore[arg-type]
    for i, candidate in enumerate(chosen):
        row = {**where, **candidate.columns(), **outcomes[i][0]}
        if i in timings:
            middle = statistics.median_low(timing.median_us for timing in timings[i])
            timing = next(timing for timing in timings[i] if timing.median_us == middle)
            row |= {"p20_us": timing.p20_us, "median_us": timing.median_us, "p80_us": timing.p80_us}
        yield row


def _kept(path: Path, chosen: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Rows of a file that are of today's code and among what is tried today, and those of past changes."""
    wanted = {candidate.key for candidate in chosen}
    rows = read_records(path, "shapes")
    mine = [row for row in current(rows, VERSION) if key_of(row) in wanted]
    return mine + [row for row in rows if row["cut"]]


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What tells a row from others: that of the candidate that it is of."""
    columns = (*problem_columns(problem_of(row)), *TRIED)
    return tuple(("" if row[name] is None else row[name]) if name == "cut" else row[name] for name in columns)


TRIED = ("core", "cluster", "queries", "keys", "width", "warps", "across", "blocks_per_sm", "once", "cut", "chosen")


def tune(new_run: bool = False, named: str = "", wait: bool = False) -> Path:
    """Measure what is not measured yet of today's code, a problem after the other, and return the file of the rows.

    `named` is the card's folder, which otherwise follows from the card; `wait` for another command that writes there.

    Raises: DataError, GpuError.
    """
    with cards.opened({**identity(), **environment()}, named, wait) as folder:
        return search(folder / "shapes.csv", new_run)


def search(path: Path, new_run: bool = False) -> Path:
    """As `tune`, with the rows in the file that is named."""
    chosen = candidates(device_target())
    kept = [] if new_run else _kept(path, chosen)
    write_table(path, "shapes", kept)
    done = {key_of(row) for row in kept}
    todo = [candidate for candidate in chosen if candidate.key not in done]
    if todo:
        compile_all(todo, device_target())
        warm_up()
    with tqdm(total=len(todo), desc="check and time", unit="shape") as bar:
        for problem in dict.fromkeys(candidate.problem for candidate in todo):
            mine = [candidate for candidate in todo if candidate.problem == problem]
            for row in measured(problem, mine):
                append_rows(path, "shapes", [row])
                bar.update()
    return path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis tune", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--new-run", action="store_true", help="measure again what is measured of today's code")
    cards.add_options(parser)
    parser.add_argument("--list", action="store_true", help="list what would be measured, which needs no GPU")
    options = parser.parse_args(arguments)
    try:
        if options.list:
            for candidate in candidates():
                print(candidate.problem, candidate.shape, "chosen" if candidate.chosen else "")
            return 0
        path = tune(options.new_run, options.gpu, options.wait)
    except (DataError, GpuError) as error:
        print(f"tune: {error}", file=sys.stderr)
        return 1
    frame = read_table(path, "shapes")
    print(f"[tune] {len(frame)} rows, of which {(frame['status'] == 'error').sum()} in error; {path}")
    return 0
