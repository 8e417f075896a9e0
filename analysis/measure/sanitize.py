"""What compute-sanitizer sees in every version: `python -m analysis sanitize` writes measured/<gpu>/sanitizers.csv.

    python -m analysis sanitize --logs FOLDER      run the four tools on the GPU at hand, keep what they print
    python -m analysis sanitize --versions rope_v8

One process for each tool and version, `python -m analysis.measure.sanitize TOOL VERSION`, and one row: how many hazards
the tool counts over the small, odd problems on which the emulator tries the version too. What a version declares is
expected. In that process every buffer is a driver allocation of its exact size, which holds nothing unless the plan
fills it: memcheck and initcheck watch that.

A tool that misses the planted kernel, or does not come to its end, has checked nothing. That kernel reads past a
buffer, reads what nobody wrote, and races; a barrier that diverges is not planted, since it may hang the GPU. Older
rows name a kernel and a place, which were read from the tools' reports.
"""

import argparse
import collections
import ctypes
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from cuda.bindings import driver

from kernels import VERSIONS, Problem, Unsupported
from kernels.checking.check import problems
from kernels.checking.reference import make_inputs
from kernels.runtime.compile import compile_ptx, require_target
from kernels.runtime.gpu import (
    DTYPES,
    GpuError,
    cells_of,
    device_target,
    encode_map,
    load_ptx,
    prepare_launch,
    require_gpu,
)
from kernels.runtime.probes import EMPTY

from ..errors import REFUSED, MeasureError
from ..evidence.current import Row, current, today
from ..record import cards, records
from ..record.files import ROOT
from .machine import toolkit
from .run import compile_pair, require_versions
from .runs import at_card
from .workers import compilers, tqdm


class Tool(NamedTuple):
    """What a tool looks for, whether the planted kernel has it, and the tool's own options."""

    finding: str
    planted: bool
    options: tuple[str, ...] = ()


TOOLS = {
    "memcheck": Tool("out_of_bounds", True, ("--padding 65536", "--report-api-errors no")),
    "racecheck": Tool("race", True, ("--racecheck-report analysis",)),
    "initcheck": Tool("uninitialised", True, ("--initcheck-address-space all",)),
    "synccheck": Tool("divergent_barrier", False),
}
COMMON_OPTIONS = (
    "--destroy-on-device-error kernel",
    "--show-backtrace no",
    "--target-processes application-only",
    "--launch-timeout 300",
)
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) ")
TIMEOUT = 300.0  # seconds, of one process
FIRST_PORT = 49_152
MOST_JOBS = 8
PLANTED = "planted"
EXACT = "memcheck"  # leaves out the padding, so that a declared read out of bounds shows


# ---------------------------------------------------------------- the process that a tool watches


def planted_ptx(target: str) -> str:
    """A kernel that reads x[1] and the first word of shared memory, then stores its thread in that word and in x[0]."""
    header = re.findall(r"^\.(?:version|target|address_size) .*$", compile_ptx(EMPTY, target), re.MULTILINE)
    body = f""".extern .shared .align 16 .b8 shared[];
.visible .entry {PLANTED}(.param .u64 p_x) {{
  .reg .b64 %x; .reg .b32 %r<5>;
  ld.param.u64 %x, [p_x];
  mov.u32 %r0, %tid.x; mov.u32 %r1, shared;
  ld.global.b32 %r2, [%x+4]; ld.shared.b32 %r3, [%r1];
  st.shared.b32 [%r1], %r0;
  add.u32 %r4, %r2, %r3; add.u32 %r4, %r4, %r0; st.global.b32 [%x], %r4; ret;
}}
"""
    return "\n".join([*header, body])


def _ask(entry: Any, *arguments: Any) -> Any:
    code, *values = entry(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise GpuError(f"the CUDA driver answered {code.name} to {entry.__name__}")
    return values[0] if values else None


def allocate(sizes: Mapping[str, int]) -> dict[str, int]:
    """Addresses of driver allocations of so many bytes, one each, which end with the process."""
    return {name: int(_ask(driver.cuMemAlloc, size)) for name, size in sizes.items()}


def run_planted(tool: str) -> None:
    addresses = allocate({"x": 4 if tool == EXACT else 8})
    function = load_ptx(planted_ptx(device_target()))
    prepare_launch(function, (1,), (64,), [addresses["x"]], [ctypes.c_uint64], 16)()
    torch.cuda.synchronize()


def run_version(name: str, problem: Problem, tool: str) -> None:
    """One call. Raises: Unsupported, GpuError."""
    plan = VERSIONS[name](problem, device_target())
    inputs = make_inputs(problem, "uniform")
    itemsize = {name: DTYPES[buffer.dtype].itemsize for name, buffer in plan.buffers.items()}
    sizes = {name: buffer.size * itemsize[name] for name, buffer in plan.buffers.items()}
    padding = {name: 0 if tool == EXACT else b.padding * itemsize[name] for name, b in plan.buffers.items()}
    addresses = allocate({name: size + padding[name] for name, size in sizes.items()})
    for name, buffer in plan.buffers.items():
        if padding[name]:
            _ask(driver.cuMemsetD8, addresses[name] + sizes[name], 0xFF, padding[name])
        contents = buffer.init() if buffer.init else inputs.get(name)
        if contents is not None:
            host = torch.as_tensor(contents).to(DTYPES[buffer.dtype]).contiguous()
            _ask(driver.cuMemcpyHtoD, addresses[name], host.data_ptr(), sizes[name])
    maps = {name: buffer.tensor_map for name, buffer in plan.buffers.items() if buffer.tensor_map is not None}
    given = addresses | {name: encode_map(of, addresses[of.buffer]) for name, of in maps.items()}
    for launch in plan.launches:
        require_target(launch, device_target())
        values = [given[argument] if isinstance(argument, str) else argument for argument in launch.args]
        function = load_ptx(compile_ptx(launch.kernel, device_target()))
        shape = launch.grid, launch.block
        prepare_launch(function, *shape, values, cells_of(launch, maps), launch.dynamic_bytes, launch.cluster)()
        torch.cuda.synchronize()
    for address in addresses.values():
        _ask(driver.cuMemFree, address)


def run_watched(tool: str, name: str) -> int:
    """What a tool watches: a version on its small problems, or the planted kernel. Returns the exit code."""
    torch.zeros(1, device=require_gpu())  # makes torch's context current, for the driver's allocations
    if name == PLANTED:
        run_planted(tool)
        return 0
    code = REFUSED
    for problem in problems(VERSIONS[name]):
        try:
            run_version(name, problem, tool)
            code = 0
        except Unsupported as refusal:
            print(refusal)
    return code


# ---------------------------------------------------------------- the tools


class Told(NamedTuple):
    """How a watched process ended: its exit code, and the hazards that the tool counts; None without a summary."""

    code: int
    hazards: int | None


def options(tool: str, help_text: str, port: int) -> list[str]:
    """The command-line options of a tool that this compute-sanitizer knows."""
    wanted = [f"--tool {tool}", *COMMON_OPTIONS, f"--port {port}", *TOOLS[tool].options]
    known = [option for option in wanted if re.search(rf"{option.split()[0]}\b", help_text)]
    return [word for option in known for word in option.split()]


def watch(binary: str, tool: str, name: str, help_text: str, port: int, folder: Path) -> Told:
    log = folder / f"{tool}_{name}.log"
    command = [binary, *options(tool, help_text, port), sys.executable, "-m", "analysis.measure.sanitize", tool, name]
    with open(log, "wb") as out:
        try:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, timeout=TIMEOUT).returncode
        except subprocess.TimeoutExpired:
            return Told(-1, None)
    counts = SUMMARY.findall(log.read_text(encoding="utf-8", errors="replace"))
    return Told(code, int(counts[-1]) if counts else None)


def declared(name: str) -> set[str]:
    """The kinds of hazards that a version declares on its small problems."""
    version = VERSIONS[name]
    return {hazard.kind for problem in problems(version) for hazard in version(problem).hazards}


def row_of(tool: str, name: str, told: Told, hears: bool) -> Row:
    """The row of one tool and version. `hears`: whether the tool found the planted hazard."""
    finding = TOOLS[tool].finding
    expected = finding in declared(name)
    if not told.hazards:
        finding, expected = "none", True
        if told.code == REFUSED and told.hazards is not None:
            finding = "unsupported"
        elif told.code or told.hazards is None or not hears:
            finding, expected = "not_checked", False
    own = {"finding": finding, "hazards": told.hazards, "expected": expected}
    return {"tool": tool, "version": name, **own, "source_hash": today(name)}


def sanitize(names: Sequence[str], folder: Path) -> Iterator[list[Row]]:
    """Run every tool on the versions, and yield rows as versions are done; what the tools print goes to `folder`.

    Raises: Refused; MeasureError where no tool checks anything, before any row.
    """
    binary = toolkit("compute-sanitizer")
    help_text = subprocess.run([binary, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    todo = [(tool, name) for name in (PLANTED, *names) for tool in TOOLS]
    ports = itertools.cycle(range(FIRST_PORT, FIRST_PORT + 8000, 8))
    held, found = list[Row](), False
    with ThreadPoolExecutor(min(MOST_JOBS, os.cpu_count() or 1)) as pool:
        made = pool.map(lambda job, port: watch(binary, job[0], job[1], help_text, port, folder), todo, ports)
        told = iter(tqdm(made, total=len(todo)))
        planted = [next(told) for _ in TOOLS]
        hears = [not tool.planted or bool(each.hazards) for tool, each in zip(TOOLS.values(), planted)]
        for name in names:
            held += [row_of(tool, name, next(told), hear) for tool, hear in zip(TOOLS, hears)]
            found |= any(row["finding"] != "not_checked" for row in held)
            if found:
                yield held
                held = []
    if held:
        raise MeasureError(f"no tool has checked anything, and nothing is written; what they say is in {folder}")


def checked(rows: Sequence[Row]) -> set[str]:
    """The versions that every tool has checked."""
    return {row["version"] for row in rows} - {row["version"] for row in rows if row["finding"] == "not_checked"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis sanitize", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--versions", default="", help="these, separated by commas (default: what has no row of today)")
    parser.add_argument("--logs", type=Path, help="folder for what the tools print (default: a temporary one)")
    cards.add_options(parser)
    chosen = parser.parse_args(arguments)
    began, own = time.monotonic(), [version.id for version in VERSIONS.values() if not version.is_peer]
    names = [name for name in require_versions(chosen.versions) if name in own]
    toolkit("compute-sanitizer")  # without one there is no card to hold
    folder = (chosen.logs or Path(tempfile.mkdtemp(prefix="sanitizers-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows, run = list[Row](), None
    with at_card(chosen.gpu) as writer:
        known = () if chosen.versions else current(records(writer.card, "sanitizers"))
        done = checked(known)
        names = [name for name in names if name not in done]
        with compilers(writer.gpu["target"]) as compile_each:
            compile_each(compile_pair, [(name, problem) for name in names for problem in problems(VERSIONS[name])])
        for some in sanitize(names, folder) if names else ():
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
    print(f"[sanitize] {run.folder if run else 'nothing is left to check'}; what the tools print: {folder}")
    return int(bool(undeclared))


if __name__ == "__main__":
    sys.exit(run_watched(*sys.argv[1:]))
