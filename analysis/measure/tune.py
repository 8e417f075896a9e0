"""Search the shapes of V8 on the GPU at hand.

RoPE attention is checked on both inputs and timed (device_warm) in the shape that V8's rule chooses and in its
neighbours, on both cores that need clusters. Three repetitions in random order are enough for a search; what is claimed
of a version is measured by `python -m analysis measure`. Rows with a `cut` are of a past audit, which changed lines of
the kernel: they stay, and no command measures them again.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernels import VERSIONS, Problem, Unsupported
from kernels.checking.reference import INPUTS, reference_of
from kernels.limits import EMULATED_TARGET, capability, limits_of
from kernels.rope.v8 import ROPE, rates_buffer
from kernels.runtime.compile import CompileError, assembled, compile_ptx, require_target, resources
from kernels.runtime.gpu import GpuError, Program, device_target
from kernels.v8 import WARPGROUPS_ON, mma, mma_shape, plan, wgmma, wgmma_shape
from kernels.version import Plan

from ..errors import MeasureError
from ..evidence.current import current, today
from ..record import cards, records
from ..record.problems import problem_columns
from ..record.runs import read
from .machine import now, warm_up
from .on_gpu import TIMED_INPUTS
from .provenance import commit
from .runs import at_card
from .studies import partial_rope
from .timing import device_warm
from .workers import compilers, tqdm

VERSION = "rope_v8"
CORES = {"wgmma": wgmma, "mma": mma}
REPETITIONS = 3
SEED = 8

FIELDS: dict[str, dict[str, tuple[int, ...]]] = {  # what is tried of each field; and half and twice the cluster
    "wgmma": {"queries": (8, 16, 24, 32, 48, 64), "warpgroups": (1, 2, 4), "blocks": (1, 2), "once": (False, True)},
    "mma": {"queries": (16, 32), "blocks": (1, 2)},
}
PREFILL = partial_rope(1, 8, 2048, 128)
LONG = (partial_rope(1, 8, 256, 128), partial_rope(1, 8, 512, 128), PREFILL, replace(PREFILL, causal=True))
PROBLEMS = (
    *(partial_rope(1, 4, 64, hdim) for hdim in (128, 256, 512, 1024, 2048, 4096)),
    partial_rope(1, 2, 32, 4096),
    *(partial_rope(8, 16, 64, hdim) for hdim in (128, 512, 2048)),
    *LONG,
)
Row = dict[str, Any]


# ---------------------------------------------------------------- what is tried


@dataclass(frozen=True)
class Candidate:
    """RoPE attention on a problem by a core in a shape."""

    problem: Problem
    core: str
    shape: Any  # of that core
    target: str = EMULATED_TARGET

    @property
    def chosen(self) -> bool:
        """Whether the version takes this core and shape for the problem."""
        return (self.core, self.shape) == choice(self.problem, self.target)

    def plan(self) -> Plan:
        """Raises: Unsupported where the shape does not take the problem."""
        launch = CORES[self.core].attend(self.problem, ROPE, "rates", self.problem.rotary_dim, shape=self.shape)
        return plan(self.problem, launch, rates=rates_buffer(self.problem.rotary_dim))

    @functools.cached_property
    def columns(self) -> Row:
        """The columns of shapes.csv that say what was tried."""
        return {
            **problem_columns(self.problem),
            "core": self.core,
            "cluster": self.shape.cluster,
            "queries": self.shape.queries,
            "keys": getattr(self.shape, "keys", wgmma_shape.KEYS),
            "width": self.shape.width,
            "warps": self.shape.threads // 32,
            "across": getattr(self.shape, "across", None),
            "blocks_per_sm": self.shape.blocks,
            "once": getattr(self.shape, "once", False),
            "cut": None,
            "chosen": self.chosen,
        }

    def has(self, row: Row) -> bool:
        """Whether a row is of this candidate."""
        return all(row[name] == value for name, value in self.columns.items())


@functools.cache
def choice(problem: Problem, target: str = EMULATED_TARGET) -> tuple[str, Any]:
    """The core and the shape that `rope_v8` takes for a problem."""
    shape = VERSIONS[VERSION](problem, target).launches[-1].shape
    return shape.core, shape


def shapes(problem: Problem, core: str, target: str) -> list[Any]:
    """What the rule of a core chooses, and shapes that differ from it in one field and fit; none where no tile fits.

    They fit the shared memory of the SM, for as many blocks as share it, and have a row for the queries.
    """
    limits = limits_of(target)
    try:
        chosen = wgmma.choose(problem) if core == "wgmma" else mma.choose(problem, target=target)
    except Unsupported:
        return []
    width_of = wgmma_shape.width_of if core == "wgmma" else mma_shape.width_of
    changes: list[dict[str, Any]] = [{name: value} for name, values in FIELDS[core].items() for value in values]
    for cluster in (chosen.cluster // 2, 2 * chosen.cluster):
        if 1 <= cluster <= limits.cluster:
            changes.append({"cluster": cluster, "width": width_of(problem.hdim, cluster)})
    found = [chosen]
    for change in changes:
        with contextlib.suppress(ValueError):  # the core has no such shape
            found.append(replace(chosen, **change))

    def fits(shape: Any) -> bool:
        most = limits.shared_bytes // shape.blocks - limits.reserved_shared_bytes
        covers = (shape.cluster - 1) * shape.width < problem.hdim
        return shape.layout.nbytes <= most and shape.queries - problem.seq_q < 16 and covers

    return [shape for shape in dict.fromkeys(found) if fits(shape)]


def candidates(target: str = EMULATED_TARGET) -> list[Candidate]:
    """Everything that is tried on a target, in the order of the problems; of wgmma where that has it."""
    cores = {"wgmma": PROBLEMS} if capability(target) == WARPGROUPS_ON else {}
    cores["mma"] = tuple(problem for problem in PROBLEMS if not problem.causal)
    return [
        Candidate(problem, core, shape, target)
        for problem in PROBLEMS
        for core, mine in cores.items()
        if problem in mine
        for shape in shapes(problem, core, target)
    ]


# ---------------------------------------------------------------- measuring


def _compile(candidate: Candidate, target: str) -> None:
    with contextlib.suppress(Unsupported, CompileError):  # the row says what cannot be planned or compiled
        launch = candidate.plan().launches[0]
        require_target(launch, target)
        assembled(compile_ptx(launch.kernel, target), target)


def _checked(candidate: Candidate) -> tuple[Row, Program | None]:
    """The columns of a check on both inputs, and the program to time: none where it may not be timed."""
    found: Row = {}
    try:
        plan = candidate.plan()
        launch = plan.launches[0]
        found = {"blocks": math.prod(launch.grid), "shared_bytes": launch.shared_bytes}
        require_target(launch, device_target())
        found["registers"] = resources(launch.kernel, device_target()).registers
        cases = {kind: reference_of(candidate.problem, kind, "cuda") for kind in INPUTS}
        programs = {kind: Program(plan, case.given) for kind, case in cases.items()}
        verdicts = [case.compare(programs[kind].output()) for kind, case in cases.items()]
    except Unsupported as refusal:
        return {**found, "status": refusal.status, "reason": str(refusal)}, None
    except (CompileError, GpuError) as error:
        return {**found, "status": "error", "reason": str(error).splitlines()[0]}, None
    worst = max(verdicts, key=lambda verdict: (verdict.status != "ok", verdict.max_abs_err / verdict.allowed_abs_err))
    found |= {"max_abs_err": worst.max_abs_err, "allowed_abs_err": worst.allowed_abs_err, "status": "ok"}
    if worst.status != "ok":
        reason = f"max_abs_err {worst.max_abs_err:.3g}, allowed {worst.allowed_abs_err:.3g}, NaN {worst.nan_share:.3g}"
        return {**found, "status": "error", "reason": reason}, None
    return found, programs[TIMED_INPUTS]


def measured(chosen: Sequence[Candidate]) -> Iterator[Row]:
    """A row for every candidate of one problem: checked, then timed in turns, each turn in an order of its own.

    Raises: MeasureError after the row of a candidate that leaves the GPU in no state to go on.
    """
    where = {"measured_at": now(), "commit": commit(), "source_hash": today(VERSION)}
    rows, programs = [], {}
    for place, candidate in enumerate(chosen):
        try:
            found, program = _checked(candidate)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            yield {**where, **candidate.columns, "status": "error", "reason": reason}
            raise MeasureError(f"{candidate}: {reason}; the next call goes on without it") from error
        rows.append({**where, **candidate.columns, **found})
        if program:
            programs[place] = program
    dice = random.Random(SEED)
    orders = [dice.sample(list(programs), len(programs)) for _ in range(REPETITIONS)]
    timings = [{place: device_warm(programs[place]) for place in order} for order in orders]
    for place in programs:
        middle = sorted((each[place] for each in timings), key=lambda timing: timing.median_us)[REPETITIONS // 2]
        rows[place] |= {"p20_us": middle.p20_us, "median_us": middle.median_us, "p80_us": middle.p80_us}
    yield from rows


def tune(new_run: bool = False, named: str = "", wait: bool = False) -> Path:
    """Measure all in one run of the card at hand, one problem after the other, unless its rows are there and of
    today's code; return the card's folder, which `named` names. `wait` for whoever measures there.

    Raises: DataError, MeasureError.
    """

    def left(rows: Sequence[Row]) -> list[Candidate]:
        mine = current(rows, VERSION)
        return [each for each in chosen if not any(each.has(row) for row in mine)]

    with at_card(named, wait) as writer:
        target = writer.gpu["target"]
        chosen = candidates(target)
        if not new_run and not left(records(writer.card, "shapes")):
            return writer.card
        run = writer.run("shapes", new_run)
        run.settle("shapes", complete=False)
        todo = left(read(run.folder, "shapes"))
        with compilers(target) as compile_each:
            compile_each(_compile, todo)
        warm_up()
        for problem in tqdm(dict.fromkeys(candidate.problem for candidate in todo), desc="check and time"):
            for row in measured([candidate for candidate in todo if candidate.problem == problem]):
                run.append("shapes", [row])
        run.settle("shapes", complete=True)
        return writer.card


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis tune", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--new-run", action="store_true", help="measure again what is measured of today's code")
    cards.add_options(parser)
    options = parser.parse_args(arguments)
    path = tune(options.new_run, options.gpu, options.wait)
    rows = records(path, "shapes")
    print(f"[tune] {len(rows)} rows, of which {sum(row['status'] == 'error' for row in rows)} in error; {path}")
    return 0
