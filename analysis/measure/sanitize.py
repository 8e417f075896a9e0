"""compute-sanitizer on every version: `python -m analysis sanitize`.

A row for each tool and version: how many hazards the tool counts over the small, odd problems on which the emulator
tries the version too. What a version declares is expected. A process, `python -m analysis.measure.sanitize TOOL
VERSION...`, has several versions that declare nothing; where the tool counts a hazard, or it ends in another way than
it should, each of them has a process of its own. In it every buffer is an allocation of its exact size, which holds
nothing unless the plan fills it: memcheck and initcheck watch that.

A tool that does not find what is `KNOWN`, or does not come to its end, has checked nothing. No diverging barrier is
known, since one may hang the GPU.
"""

import collections
import contextlib
import functools
import itertools
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kernels import VERSIONS, Problem, Unsupported
from kernels.checking.check import problems
from kernels.checking.reference import make_inputs
from kernels.registry import OWN
from kernels.runtime.compile import compile_ptx, require_target
from kernels.runtime.gpu import DRIVER, TORCH_DTYPES, device_target, load_ptx, prepare_launch, require_gpu

from ..errors import REFUSED, MeasureError
from ..evidence.current import Row, current, identity
from ..record import cards, records
from ..record.files import ROOT
from .machine import toolkit
from .run import at_card, compile_pair
from .workers import CORES, compilers, tqdm


class Tool(NamedTuple):
    """A tool: the hazards that it finds, and its options."""

    finding: str
    options: tuple[str, ...] = ()


TOOLS = {
    "memcheck": Tool("out_of_bounds", ("--padding 65536", "--report-api-errors no")),
    "racecheck": Tool("race", ("--racecheck-report analysis",)),
    "initcheck": Tool("uninitialised", ("--initcheck-address-space all",)),
    "synccheck": Tool("divergent_barrier"),
}
KNOWN = "rope_separate"  # races and reads past a table; in the process that is to be heard nobody writes its q either
HEARD = "known"
COMMON_OPTIONS = (
    "--destroy-on-device-error kernel",
    "--show-backtrace no",
    "--target-processes application-only",
    "--launch-timeout 300",
)
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) ")
TIMEOUT = 300.0  # seconds, of one process
PORTS = range(29_000, 60_000, 1_000)  # each the first of those of a command, and taken by it
TOGETHER = 8  # versions in a process
MOST, ROOM = 32, 2 << 30  # processes at a time; bytes of the card's memory for each
EXACT = "memcheck"  # leaves out the padding, so that a declared read out of bounds shows


def run_version(name: str, problem: Problem, tool: str, unwritten: str = "") -> None:
    """One call. Raises: Unsupported, GpuError."""
    target, device = device_target(), require_gpu()
    plan, inputs = VERSIONS[name](problem, target), make_inputs(problem, "uniform")
    memory: dict[str, torch.Tensor] = {}
    for name, buffer in plan.buffers.items():
        padding = 0 if tool == EXACT else buffer.padding
        memory[name] = torch.empty(buffer.size + padding, dtype=TORCH_DTYPES[buffer.dtype], device=device)
        memory[name][buffer.size :].view(torch.uint8).fill_(0xFF)  # NaN
        contents = buffer.init() if buffer.init else inputs.get(name)
        if contents is not None and name != unwritten:
            memory[name][: buffer.size] = torch.as_tensor(contents).to(TORCH_DTYPES[buffer.dtype]).flatten()
    maps = {name: buffer.tensor_map for name, buffer in plan.buffers.items() if buffer.tensor_map is not None}
    given: dict[str, Any] = {name: buffer.data_ptr() for name, buffer in memory.items()}
    given |= {name: DRIVER.encode_map(of, given[of.buffer]) for name, of in maps.items()}
    for launch in plan.launches:
        require_target(launch, target)
        values = [given[argument] if isinstance(argument, str) else argument for argument in launch.args]
        function = load_ptx(compile_ptx(launch.kernel, target))
        prepare_launch(function, launch, values, maps)()
        torch.cuda.synchronize()


def run_watched(tool: str, *names: str) -> int:
    """Run a process under a tool: versions on their small problems, or those of `KNOWN`. Returns the exit code.

    It is REFUSED where one of the versions runs on none of its problems.
    """
    names, unwritten = ((KNOWN,), "q") if names == (HEARD,) else (names, "")
    ran = set()
    for name in names:
        for problem in problems(VERSIONS[name]):
            try:
                run_version(name, problem, tool, unwritten)
                ran.add(name)
            except Unsupported as refusal:
                print(refusal)
    return 0 if ran.issuperset(names) else REFUSED


class Told(NamedTuple):
    """How a watched process ended: its exit code, and the hazards that the tool counts; None without a summary."""

    code: int
    hazards: int | None


@functools.cache
def _help(binary: str) -> str:
    done = subprocess.run([binary, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout.decode(errors="replace")


@functools.cache
def _ports() -> tuple[Iterator[int], socket.socket]:
    """Ports, one for each process; as long as this command runs, the socket keeps another command from them."""
    taken = socket.socket()
    for first in PORTS:
        with contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", first))
            break
    return itertools.cycle(range(first + 8, first + PORTS.step, 8)), taken


def options(tool: str, binary: str) -> list[str]:
    """The command-line options of a tool that this compute-sanitizer knows; processes meet on ports of their own."""
    wanted = [f"--tool {tool}", *COMMON_OPTIONS, f"--port {next(_ports()[0])}", *TOOLS[tool].options]
    known = [option for option in wanted if re.search(rf"{option.split()[0]}\b", _help(binary))]
    return [word for option in known for word in option.split()]


def watch(folder: Path, tool: str, names: Sequence[str]) -> Told:
    """Have a tool watch versions; what it prints goes to `folder`."""
    binary = toolkit("compute-sanitizer")
    command = [binary, *options(tool, binary), sys.executable, "-m", "analysis.measure.sanitize", tool, *names]
    here = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "LC_ALL": "C"}  # a buffer is an allocation of its own
    log = folder / f"{tool}_{names[0]}{f'_and_{len(names) - 1}_more' * (len(names) > 1)}.log"
    with open(log, "wb") as out:
        try:
            done = subprocess.run(command, stdout=out, stderr=out, cwd=ROOT, env=here, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return Told(-1, None)
    counts = SUMMARY.findall(log.read_text(encoding="utf-8", errors="replace"))
    return Told(done.returncode, int(counts[-1]) if counts else None)


def watch_each(folder: Path, tool: str, names: Sequence[str]) -> dict[str, Told]:
    """How a tool ends on each version: on all at once where it has nothing to say, else on each alone."""
    told = watch(folder, tool, names)
    if len(names) == 1 or told == Told(0, 0):
        return dict.fromkeys(names, told)
    return {name: watch(folder, tool, [name]) for name in names}


def declared(name: str) -> set[str]:
    """The kinds of hazards that a version declares on its small problems."""
    version = VERSIONS[name]
    return {hazard.kind for problem in problems(version) for hazard in version(problem).hazards}


def row_of(tool: str, name: str, told: Told, hears: bool) -> Row:
    """The row of one tool and version. `hears`: whether the tool found what is known."""
    finding = TOOLS[tool].finding
    expected = finding in declared(name)
    if not told.hazards:
        finding, expected = "none", True
        if told.code == REFUSED and told.hazards is not None:
            finding = "unsupported"
        elif told.code or told.hazards is None or not hears:
            finding, expected = "not_checked", False
    own = {"finding": finding, "hazards": told.hazards, "expected": expected}
    return {"tool": tool, "version": name, **own, **identity(name)}


def _parts(names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Which versions a process of a tool checks: what takes long first, all tools on some before the next."""
    slowest = sorted(names, key=lambda name: -sum(problem.flops for problem in problems(VERSIONS[name])))
    kinds = {name: declared(name) for name in names}
    for start in range(0, len(slowest), TOGETHER):
        some = slowest[start : start + TOGETHER]
        for tool, of in TOOLS.items():
            yield from ((tool, [name]) for name in some if of.finding in kinds[name])
            if silent := [name for name in some if of.finding not in kinds[name]]:
                yield tool, silent


def sanitize(names: Sequence[str], folder: Path, processes: int = CORES) -> Iterator[list[Row]]:
    """Run every tool on the versions, and yield rows as they come; what the tools print goes to `folder`."""
    with ThreadPoolExecutor(processes) as pool, contextlib.ExitStack() as stack:
        stack.callback(pool.shutdown, cancel_futures=True)
        bar = stack.enter_context(tqdm(total=len(names) * len(TOOLS)))
        known = dict(zip(TOOLS, pool.map(lambda tool: watch(folder, tool, [HEARD]), TOOLS)))
        if not any(told.hazards for told in known.values()):
            raise MeasureError(f"no tool finds what is known, and nothing is written; what they say is in {folder}")
        made = {pool.submit(watch_each, folder, *part): part[0] for part in _parts(names)}
        for future in as_completed(made):
            tool, found = made[future], future.result()
            hears = tool == "synccheck" or bool(known[tool].hazards)
            yield [row_of(tool, name, told, hears) for name, told in found.items()]
            bar.update(len(found))


def checked(rows: Iterable[Row]) -> set[str]:
    """The versions that every tool has checked."""
    found = {(row["version"], row["tool"]) for row in rows if row["finding"] != "not_checked"}
    return {name for name in VERSIONS if found.issuperset((name, tool) for tool in TOOLS)}


def main(arguments: list[str] | None = None) -> int:
    chosen = cards.parser("sanitize", __doc__).parse_args(arguments)
    began, own = time.monotonic(), [version.id for version in OWN]
    toolkit("compute-sanitizer")  # without one there is no card to hold
    folder = Path(tempfile.mkdtemp(prefix="sanitizers-"))
    rows, run = list[Row](), None
    with at_card(chosen.gpu) as writer:
        known = current(records(writer.card, "sanitizers"))
        done = checked(known)
        names = [name for name in own if name not in done]
        with compilers(writer.gpu["target"]) as compile_each:
            compile_each(compile_pair, [(name, problem) for name in names for problem in problems(VERSIONS[name])])
        processes = max(1, min(CORES, MOST, writer.gpu["memory_bytes"] // ROOM))
        for some in sanitize(names, folder, processes) if names else ():
            run = run or writer.run("sanitizers", new=True)  # its rows take the place of a version's earlier ones
            run.append("sanitizers", some)
            rows += some
        if run:
            seconds, complete = round(time.monotonic() - began, 1), checked([*known, *rows]).issuperset(own)
            run.settle("sanitizers", complete=complete, seconds=seconds, throttle="unknown")
    for (tool, finding), n in sorted(collections.Counter((row["tool"], row["finding"]) for row in rows).items()):
        print(f"[sanitize] {tool}: {n} {finding}")
    undeclared = [row for row in rows if not row["expected"]]
    for row in undeclared:
        print(f"[sanitize] NOT DECLARED: {row['tool']}: {row['finding']} in {row['version']}")
        with contextlib.suppress(OSError):
            print((folder / f"{row['tool']}_{row['version']}.log").read_text(errors="replace")[:2000])
    print(f"[sanitize] {run.folder if run else 'nothing is left to check'}; what the tools print: {folder}")
    return int(bool(undeclared))


if __name__ == "__main__":
    sys.exit(run_watched(*sys.argv[1:]))
