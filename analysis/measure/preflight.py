"""Before measuring on this machine: each line says what is fine, what will disturb, or what stops it.

The machine is asked before anything runs on its GPU or takes memory of it.
"""

import contextlib
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from cuda.bindings import driver

from kernels import VERSIONS, Unsupported
from kernels.limits import TARGETS, capability

from ..record import files, records
from ..record.files import read_json
from ..studies import MAIN
from . import machine
from .environment import LEAST_DRIVER, driver_cuda, lock_cuda

LEAVES_IN = 10.0  # seconds that processes of an interrupted call have to leave the card
OK, WARNING, STOPS = "ok", "warning", "stops"


@dataclass(frozen=True)
class Machine:
    """Answers of a machine; None where it has none."""

    name: str | None = None
    target: str = ""
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    torch_cuda: str | None = None
    torch_sees_it: bool = True
    processes: tuple[str, ...] | None = None  # the id and the command of each


class Line(NamedTuple):
    topic: str
    state: str
    text: str

    def __str__(self) -> str:
        return f"[check] {self.state:8s}{self.topic}: {self.text}"


def _ask(entry: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of the CUDA driver, or None; it needs no torch that can use it."""
    with contextlib.suppress(RuntimeError):  # there is no driver, or none that knows this
        code, *values = entry(*arguments)
        return values[0] if values and not int(code) else None
    return None


def _command(pid: int) -> str:
    """The command line of a process; empty where it has ended, or where a container does not see it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _running(card: str) -> tuple[str, ...] | None:
    """The processes on a card; None if it does not say. Those of this Python may be ending: they have LEAVES_IN s."""
    own: set[int] = set()  # remembered: a process that has just ended has no command, and is still on the card's list
    ends = time.monotonic() + LEAVES_IN
    while (found := machine.ask("nvmlDeviceGetComputeRunningProcesses", card=card)) is not None:
        commands = {each.pid: _command(each.pid) for each in found}
        own |= {pid for pid, command in commands.items() if command.startswith(sys.executable)}
        if not own & commands.keys() or time.monotonic() > ends:
            return tuple(f"{pid} {command[:60]}".strip() for pid, command in commands.items())
        time.sleep(0.2)
    return None


def gather() -> Machine:
    """Answers of CUDA's driver, NVML and torch about the first GPU."""
    _ask(driver.cuInit, 0)
    if (device := _ask(driver.cuDeviceGet, 0)) is None:
        return Machine()
    raw = _ask(driver.cuDeviceGetUuid, device)
    card = f"GPU-{uuid.UUID(bytes=raw.bytes)}" if raw else "unknown"
    kind = driver.CUdevice_attribute
    major, minor = kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
    running = _running(card)
    return Machine(
        name=_ask(driver.cuDeviceGetName, 256, device).split(b"\0")[0].decode(),
        target="sm_" + "".join(str(_ask(driver.cuDeviceGetAttribute, each, device)) for each in (major, minor)),
        driver=machine.driver(card),
        driver_cuda=driver_cuda(),
        torch_cuda=torch.version.cuda,
        torch_sees_it=torch.cuda.is_available(),
        processes=running,
    )


def _target(target: str, name: str) -> Line:
    least, found = (".".join(map(str, capability(each))) for each in (TARGETS[0], target))
    if capability(target) < capability(TARGETS[0]):
        return Line("GPU", STOPS, f"{name} has compute capability {found}; {least} or later is needed")
    try:
        core = VERSIONS["rope_v8"](MAIN, target).core
    except Unsupported as refusal:
        core = f"none: {refusal}"
    return Line("GPU", OK, f"{name}, compute capability {found}; the core of V8 is {core}")


def _driver(given: Machine) -> Line:
    found, needed = given.driver_cuda or (0, 0), int((given.torch_cuda or "0").split(".")[0])
    runs = f"{given.driver or 'of unknown version'} runs CUDA up to {'.'.join(map(str, found))}"
    both = f"{runs}, torch is of CUDA {given.torch_cuda or 'none'}"
    if given.torch_sees_it:
        return Line("driver", OK, both)
    if found[0] >= needed:
        return Line("driver", STOPS, f"{both}, but torch sees no GPU: is it a CPU build of torch?")
    lock = lock_cuda(given.driver_cuda)
    other = f", or packages for CUDA {lock}: make gpu CUDA={lock}" if lock <= found[0] else ""
    return Line("driver", STOPS, f"{both}: driver {LEAST_DRIVER[needed]} or later is needed{other}")


def _processes(found: tuple[str, ...] | None) -> Line:
    if found is None:
        return Line("other processes", WARNING, "they cannot be read; times are wrong if another program uses the GPU")
    text = f"{', '.join(found)} on this GPU; times will be disturbed" if found else "none on this GPU"
    return Line("other processes", WARNING if found else OK, text)


def _time(reference: Path, names: Sequence[str]) -> Line:
    took = {row["study"]: row["seconds"] for row in records(reference, "runs") if row["complete"]}
    known = sum(took.get(name, 0.0) for name in names)
    unknown = ", ".join(name for name in names if name not in took)
    text = f"this took {known / 60:.1f} min on the reference card, {read_json(reference / 'gpu.json')['name']}"
    return Line("time", OK, text + (f"; of {unknown} no time is recorded" if unknown else ""))


def judge(given: Machine, names: Sequence[str]) -> Iterator[Line]:
    """The lines on a machine for some studies and other parts, by their names in run.json."""
    if given.name is None:
        yield Line("GPU", STOPS, "no CUDA GPU is visible on this machine; measuring needs one")
        return
    yield _target(given.target, given.name)
    yield _driver(given)
    yield _processes(given.processes)
    yield _time(files.DATA / "measured" / files.REFERENCE, names)


def passes(names: Sequence[str]) -> bool:
    """Print the lines on this machine; whether nothing stops measuring here."""
    lines = list(judge(gather(), names))
    for line in lines:
        print(line, file=sys.stderr if line.state == STOPS else sys.stdout, flush=True)
    return all(line.state != STOPS for line in lines)
