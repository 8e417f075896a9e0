"""Before measuring on this machine: each line says what is fine, what will be missing, or what stops it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels import VERSIONS, Problem, Unsupported
from kernels.limits import TARGETS, capability

from ..record import files, records
from ..record.files import read_json
from .driver import LEAST_DRIVER, lock_cuda
from .studies import Study
from .survey import Machine, gather

OK, WARNING, STOPS = "ok", "warning", "stops"
GB = 1e9
DISK_BYTES = 100_000_000  # of a run of every study, before it is zipped, twice
LOG_PROBLEM = Problem("rope", heads=4, seq_q=64, hdim=2048, rotary_dim=2048)  # what the V8 core is named for
CORES = {
    "wgmma": "warpgroups in thread-block clusters",
    "mma": "warps in thread-block clusters",
    "portable": "one without clusters",
}


@dataclass(frozen=True)
class Line:
    topic: str
    state: str
    text: str

    def __str__(self) -> str:
        return f"[check] {self.state:8s}{self.topic}: {self.text}"


def memory_of(problem: Problem) -> int:
    """About the bytes of GPU memory that a problem needs: its tensors in float64 too, and all scores once."""
    queries = problem.batch * problem.heads * problem.seq_q
    keys = problem.batch * problem.kv_heads * problem.seq_k
    return 12 * 2 * (queries + keys) * problem.hdim + 4 * queries * problem.seq_k


def _gpu(machine: Machine) -> Iterator[Line]:
    cc = capability(machine.target)
    least = capability(TARGETS[0])
    dotted, allowed = ".".join(map(str, cc)), ".".join(map(str, least))
    if cc < least:
        yield Line("GPU", STOPS, f"{machine.name} has compute capability {dotted}; {allowed} or later is needed")
        return
    try:
        core = CORES[VERSIONS["rope_v8"](LOG_PROBLEM, machine.target).core]
    except Unsupported as refusal:
        core = f"none: {refusal}"
    yield Line("GPU", OK, f"{machine.name}, compute capability {dotted}; V8 takes the core of {core}")


def _driver(machine: Machine) -> Line:
    what, needed = max(machine.needs_cuda.items(), key=lambda item: item[1], default=("", (0, 0)))
    wants = f"{what} is of CUDA {_dotted(needed)}"
    if machine.driver_cuda is None:
        return Line("driver", STOPS, f"it does not say which CUDA it runs; {wants}")
    both = f"{machine.driver or 'of unknown version'} runs CUDA up to {_dotted(machine.driver_cuda)}, {wants}"
    if machine.driver_cuda[0] < needed[0]:
        lock = lock_cuda(machine.driver_cuda)
        other = f", or packages for CUDA {lock}: make gpu CUDA={lock}" if lock <= machine.driver_cuda[0] else ""
        return Line("driver", STOPS, f"{both}: driver {LEAST_DRIVER[needed[0]]} or later is needed{other}")
    if not machine.torch_sees_it:
        return Line("driver", STOPS, f"{both}, but torch sees no GPU: is it a CPU build of torch?")
    return Line("driver", OK, both)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _memory(machine: Machine, studies: Sequence[Study]) -> Line:
    if machine.memory is None:
        return Line("memory", WARNING, "it cannot be read; what does not fit is a row that says out of memory")
    most = {study.name: max((memory_of(problem) for problem in study.problems), default=0) for study in studies}
    needed = max(most.values(), default=0)
    free = machine.memory if machine.free_memory is None else machine.free_memory
    text = (
        f"{machine.memory / GB:.1f} GB, {free / GB:.1f} GB free; the largest problem needs about {needed / GB:.1f} GB"
    )
    short = [name for name, nbytes in most.items() if nbytes > free]
    if short:
        return Line("memory", WARNING, f"{text}. The largest of {', '.join(short)} will say out of memory")
    return Line("memory", OK, text)


def _processes(machine: Machine) -> Line:
    if machine.processes is None:
        return Line("other processes", WARNING, "they cannot be read; times are wrong if another program uses the GPU")
    if machine.processes:
        return Line("other processes", WARNING, f"{', '.join(machine.processes)} on this GPU; times will be disturbed")
    return Line("other processes", OK, "none on this GPU")


def _tools(machine: Machine) -> Iterator[Line]:
    give = "the administrator gives it with NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia, or run as root"
    if machine.ncu is None:
        yield Line("counters", WARNING, "no ncu on PATH or under CUDA_HOME: this part is left out")
    elif machine.counters_allowed is False:
        yield Line("counters", WARNING, f"{machine.ncu} may not read them (ERR_NVGPUCTRPERM): {give}")
    elif machine.counters_allowed is None:
        yield Line("counters", OK, f"{machine.ncu}; its permission shows when it runs. Where it has none, {give}")
    else:
        yield Line("counters", OK, machine.ncu)
    if machine.sanitizer is None:
        yield Line("sanitizers", WARNING, "no compute-sanitizer on PATH or under CUDA_HOME: this part is left out")
    else:
        yield Line("sanitizers", OK, machine.sanitizer)


def _disk(machine: Machine) -> Iterator[Line]:
    for path, free in machine.free_disk.items():
        text = f"{free / GB:.2f} GB free in {path}; what is measured takes up to {DISK_BYTES / GB:.2f} GB"
        yield Line("disk", OK if free > DISK_BYTES else STOPS, text)


def expected_seconds(runs: Iterable[Mapping[str, Any]], studies: Iterable[str]) -> tuple[float, list[str]]:
    """How long it took to measure the studies last, and the studies that nobody measured.

    The seconds of a study are its own since runs name the card's UUID, and before those of a call for several studies.
    """
    rows = [row for row in runs if row["complete"]]
    latest = {row["study"]: row["run"] for row in sorted(rows, key=lambda row: row["run"])}
    names = list(studies)
    chosen = [row for row in rows if row["study"] in names and latest[row["study"]] == row["run"]]
    own = sum(row["seconds"] for row in chosen if row["uuid"])
    calls = {row["run"] for row in chosen if not row["uuid"]}
    shared = sum(max(row["seconds"] for row in rows if row["run"] == run) for run in calls)
    return own + shared, [name for name in names if name not in latest]


def _time(reference: str, runs: Iterable[Mapping[str, Any]], studies: Sequence[Study]) -> Line:
    seconds, unknown = expected_seconds(runs, [study.name for study in studies])
    took = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    text = f"these studies took {took} on the reference card, {reference}"
    return Line("time", OK, text + (f"; of {', '.join(unknown)} no time is recorded" if unknown else ""))


def judge(machine: Machine, studies: Sequence[Study], reference: Path | None = None) -> list[Line]:
    """The lines on a machine for some studies. `reference` is the folder of the record that times are taken from."""
    if machine.name is None:
        return [Line("GPU", STOPS, "no CUDA GPU is visible on this machine; measuring needs one")]
    reference = reference or files.DATA / "measured" / files.REFERENCE
    return [
        *_gpu(machine),
        _driver(machine),
        _memory(machine, studies),
        _processes(machine),
        *_tools(machine),
        *_disk(machine),
        _time(read_json(reference / "gpu.json")["name"], records(reference, "runs"), studies),
    ]


def passes(studies: Sequence[Study]) -> bool:
    """Print the lines on this machine; whether nothing stops measuring here."""
    lines = judge(gather(), studies)
    for line in lines:
        print(line, file=sys.stderr if line.state == STOPS else sys.stdout, flush=True)
    return all(line.state != STOPS for line in lines)
