"""Registers of the controls in CUDA C++ by release of CUDA, without a GPU: data/releases.csv.

    pip install --no-deps --target cuda-12.4 nvidia-cuda-nvrtc-cu12==12.4.127 nvidia-cuda-nvcc-cu12==12.4.131
    python -m analysis releases cuda-*

A folder holds the unpacked wheels of one release, of which NVRTC writes PTX and ptxas assembles it. Their names end in
-cu11 for CUDA 11, in -cu12 for CUDA 12, and in neither since CUDA 13. There nvcc writes PTX too if the folder also has
nvidia-nvvm, nvidia-cuda-crt and nvidia-cuda-runtime, and the machine has g++. Rows of other releases are kept
as long as they are of today's code.
"""

import argparse
import ctypes
import itertools
import multiprocessing
import re
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from kernels import VERSIONS, Problem
from kernels.checking.check import supports
from kernels.runtime.compile import blocks_per_sm, nvrtc_options, reported
from kernels.version import CudaFunction, Launch

from ..errors import MeasureError
from ..evidence.current import Row, current, today
from ..record import files
from ..record.files import problem_columns, read_records, write_table
from ..studies import MAIN, own_pairs
from .static import WORKERS

TARGETS = ("sm_86", "sm_89", "sm_90")
BUILDS = ("default", "rdc", "fast-math", "fast-math rdc")  # by nvcc's options -rdc=true and -use_fast_math
RELEASE = re.compile(r"release (?P<release>\S+), V(?P<exact>[\d.]+)")  # in the head of PTX, and as ptxas states it


def only(folder: Path, name: str) -> Path:
    """The one file of that name below `folder`."""
    found = {path.resolve() for path in folder.rglob(name)}
    if len(found) != 1:
        needed = "it must hold the wheels nvidia-cuda-nvrtc and nvidia-cuda-nvcc of one release, unpacked"
        raise MeasureError(f"{folder} has {len(found) or 'no'} {name}; {needed}")
    return found.pop()


def called(*command: Any, given: str | None = None) -> str:
    """The output of a program."""
    done = subprocess.run([*map(str, command)], input=given, capture_output=True, text=True)
    if done.returncode:
        raise MeasureError(f"{command[0]} failed\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def nvrtc_of(folder: Path) -> ctypes.CDLL:
    """NVRTC of a folder. A process can load that of one release only."""
    ctypes.CDLL(str(only(folder, "libnvrtc-builtins.so.*")))  # not every release looks for it beside itself
    return ctypes.CDLL(str(only(folder, "libnvrtc.so.*")))


def targets_of(nvrtc: ctypes.CDLL) -> set[str]:
    nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count := ctypes.c_int()))
    nvrtc.nvrtcGetSupportedArchs(numbers := (ctypes.c_int * count.value)())
    return {f"sm_{number}" for number in numbers}


def ptx_by_nvrtc(nvrtc: ctypes.CDLL, function: CudaFunction, options: list[str]) -> str:
    program = ctypes.c_void_p()

    def said(what: str) -> str:
        nvrtc[f"nvrtcGet{what}Size"](program, ctypes.byref(size := ctypes.c_size_t()))
        nvrtc[f"nvrtcGet{what}"](program, text := ctypes.create_string_buffer(size.value))
        return text.value.decode(errors="replace")

    nvrtc.nvrtcCreateProgram(ctypes.byref(program), function.text.encode(), b"kernel.cu", 0, None, None)
    try:
        each = (ctypes.c_char_p * len(options))(*map(str.encode, options))
        if code := nvrtc.nvrtcCompileProgram(program, len(options), each):
            raise MeasureError(f"{function.name}: NVRTC answered {code}\n{said('ProgramLog')}")
        return said("PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def ptx_by_nvcc(nvcc: Path, function: CudaFunction, options: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        text, ptx = Path(folder) / "kernel.cu", Path(folder) / "kernel.ptx"
        text.write_text(function.text)
        called(nvcc, "--ptx", *options, text, "-o", ptx)
        return ptx.read_text()


def controls() -> list[tuple[str, Problem, Launch]]:
    """Each kernel of the controls once, at the first of its problems with the head dim of the documents' main shape."""
    found = {
        launch.kernel.function: (name, problem, launch)
        for name, problem in reversed(own_pairs())
        if VERSIONS[name].control_of and problem.hdim == MAIN.hdim and supports(VERSIONS[name], problem)
        for launch in VERSIONS[name](problem).launches
    }
    return [*reversed(found.values())]


def compiled(write_ptx: Callable[..., str], ptxas: Path, launch: Launch, target: str, build: str) -> Row:
    """The report of ptxas on a kernel, by a compiler that takes a function and options."""
    options = [*nvrtc_options("fast-math" in build, target), "--std=c++17"]  # the default since CUDA 12
    relocatable = "rdc" in build
    ptx = write_ptx(launch.kernel.function, options + ["--relocatable-device-code=true"] * relocatable)
    log = called(ptxas, "-v", f"-arch={target}", *["-c"] * relocatable, "/dev/stdin", "-o", "/dev/null", given=ptx)
    assembler, compiler = (RELEASE.search(text) for text in (called(ptxas, "--version"), ptx))
    if not (assembler and compiler and assembler["release"] == compiler["release"]):
        raise MeasureError(f"{ptxas} is not of the release of the compiler in the same folder")
    used = reported(log, ptx)
    return {
        "release": assembler["exact"], "compiler_release": compiler["exact"], "target": target, "build": build,
        "kernel": launch.kernel.name, "registers": used.registers, "blocks_per_sm": blocks_per_sm(launch, target, used),
    }  # fmt: skip


def of_release(folder: Path) -> list[Row]:
    """A row for each compiler, target, build and kernel of a control."""
    nvrtc, ptxas = nvrtc_of(folder), only(folder, "ptxas")
    compilers: dict[str, Callable[..., str]] = {"NVRTC": partial(ptx_by_nvrtc, nvrtc)}
    if any(folder.rglob("cicc")):
        compilers["nvcc"] = partial(ptx_by_nvcc, only(folder, "nvcc"))
    known = targets_of(nvrtc)
    if unknown := set(TARGETS) - known:
        print(f"[releases] {folder}: left out is what that release does not know, {', '.join(sorted(unknown))}")
    return [
        {"compiler": compiler, "version": name, **problem_columns(problem), "source_hash": today(name)}
        | compiled(compilers[compiler], ptxas, launch, target, build)
        for compiler, target, build in itertools.product(compilers, filter(known.__contains__, TARGETS), BUILDS)
        for name, problem, launch in controls()
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m analysis releases", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="unpacked wheels of one release of CUDA")
    folders = parser.parse_args(arguments).folders
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        made = list(itertools.chain(*tqdm(pool.map(of_release, folders), total=len(folders), desc="releases")))
    again = {row["release"] for row in made}
    kept = [row for row in current(read_records(files.RELEASES, "releases")) if row["release"] not in again]
    rows = sorted(kept + made, key=lambda row: [int(part) for part in row["release"].split(".")])
    write_table(files.RELEASES, "releases", rows)
    print(f"[releases] {len(rows)} rows in {files.RELEASES}")
    return 0
