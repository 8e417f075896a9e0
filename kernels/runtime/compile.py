"""Kernels to PTX, PTX to machine code with its resources, for any target and without a GPU.

The GPU runs machine code assembled from the same PTX that the emulator executes.
"""

import contextlib
import functools
import gc
import hashlib
import math
import re
import subprocess
import tempfile
import types as _types
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba_cuda
from cuda.bindings import nvjitlink, nvrtc
from cuda.pathfinder import find_nvidia_binary_utility
from numba import cuda
from numba.cuda import dispatcher as _dispatcher
from numba.cuda.core import config as _config
from numba.cuda.core.compiler_lock import global_compiler_lock
from numba.cuda.np import linalg as _linalg

from ..device import mark
from ..limits import CLUSTERS_SINCE, EMULATED_TARGET, LIMITS, TARGETS, capability
from ..tensor_map import MAP_BYTES
from ..version import CudaFunction, Kernel, Launch, Unsupported
from . import cache
from .identity import kernel_identity

# Options of Numba that change the PTX of a kernel and that the environment of a process may have set.
OPTIONS = {"opt": True, "debug": False}
CONFIG = {"FORCE_CUDA_CC": None, "CUDA_ENABLE_NRT": False}
KEY_VERSION = 2
# Instructions that not every target has, by the lowest compute capability that has them (PTX ISA, target ISA notes);
# architecture-specific ones are not listed, as a kernel with them names its architecture.
INSTRUCTIONS = {
    (9, 0): re.compile(
        r"\b(?:(?:barrier\.cluster|mapa|getctarank|st\.async|red\.async|cp\.async\.bulk|cp\.reduce\.async\.bulk"
        r"|fence\.mbarrier_init|fence\.proxy\.async|mbarrier\.try_wait|griddepcontrol|elect\.sync|stmatrix)[\w.:]*"
        r"|mbarrier\.[\w.:]*expect_tx[\w.:]*|[\w.]+\.shared::cluster[\w.:]*)|%(?:cluster|nclusterid)\w*"
    ),
    (8, 9): re.compile(r"\b(?:mma\.[\w.]*\.|cvt\.[\w.]*\.?)e[45]m[23](?:x2)?[\w.]*"),
    (8, 0): re.compile(
        r"\b(?:cp\.async|mbarrier|redux\.sync|createpolicy)[\w.:]*|\bw?mma\.[\w.]*\.(?:tf32|bf16|f64)[\w.]*"
        r"|\bmma\.[\w.]*m16n8k16[\w.]*|\b(?:cvt|fma|add|mul|min|max)\.[\w.]*\b(?:tf32|bf16)(?:x2)?[\w.]*"
    ),
}
ARCHITECTURE = re.compile(r"^\.target\s+(sm_\d+a)\b", re.MULTILINE)
STATIC_SHARED = re.compile(r"^\s*\.shared [^;]*\[(\d+)\];", re.MULTILINE)
PTXAS, NVJITLINK = "ptxas", "nvjitlink"
OF_FLASH = re.compile(r"\.entry\s+_ZN\d+\w+?5flash\d")  # a kernel of the package flash, by its mangled module
REGISTER_UNIT = 256  # registers are allocated per warp, in units of this many
SHARED_UNIT = 128
WARP_GROUPS = 4  # an SM distributes its warps over four register files


class CompileError(RuntimeError):
    """The compiler refused a kernel; the message holds its log."""


@dataclass(frozen=True)
class Resources:
    """Resources of one kernel on one target, as the assembler reports them; spills and stack are bytes per thread."""

    registers: int
    spill_bytes: int | None  # None where the assembler does not report it
    stack_bytes: int | None
    static_shared_bytes: int


def _has(target: str, architecture: str | None) -> bool:
    """Whether `target` has the specific instructions of `architecture`; true for None."""
    return architecture is None or capability(target) == capability(architecture)


def architecture_target(architecture: str | None, target: str, name: str) -> str:
    """The target to compile for: `architecture` where it has the same compute capability as `target`, else `target`.

    Raises: CompileError for a target that lacks the specific instructions of the architecture.
    """
    if not _has(target, architecture):
        raise CompileError(f"{name} uses instructions of {architecture} alone; {target} has none of them")
    return architecture or target


def require_target(launch: Launch, target: str) -> None:
    """Raise Unsupported where a launch needs clusters, instructions or shared memory that the target lacks."""
    if launch.cluster > 1 and capability(target) < CLUSTERS_SINCE:
        template = f"clusters of {launch.cluster} blocks need compute capability {{needed}}, this GPU has {{allowed}}"
        raise Unsupported("capability", _dotted(CLUSTERS_SINCE), target, template)
    require_instructions(launch.kernel, target)
    if limits := LIMITS.get(capability(target)):
        require_block_shared(launch.shared_bytes, limits.block_shared_bytes)


def require_block_shared(needed: int, allowed: int) -> None:
    """Raise Unsupported where a block needs more bytes of shared memory than it may have."""
    if needed > allowed:
        template = "a block needs {needed:,} B of shared memory, this GPU has {allowed:,} B"
        raise Unsupported("shared_memory", needed, allowed, template)


def require_instructions(kernel: Kernel, target: str) -> None:
    """Raise Unsupported where a kernel has instructions that the target lacks."""
    needed = kernel.architecture
    if not _has(target, needed):
        template = f"{kernel.name} uses instructions of {{needed}} alone, this GPU has {{allowed}}"
        raise Unsupported("capability", needed, target, template)
    if capability(target) >= max(INSTRUCTIONS):
        return  # the target has all of them
    since, instruction = least_capability(compile_ptx(kernel, target))
    if capability(target) < since:
        template = f"{kernel.name} uses {instruction}, of compute capability {{needed}}, this GPU has {{allowed}}"
        raise Unsupported("capability", _dotted(since), target, template)


@functools.cache
def least_capability(ptx: str) -> tuple[tuple[int, int], str]:
    """The lowest compute capability that has all instructions of `ptx`, and the instruction that needs it; (0, 0) for
    any.
    """
    for since, pattern in INSTRUCTIONS.items():
        if match := pattern.search(ptx):
            return since, match[0]
    return (0, 0), ""


def _dotted(cc: tuple[int, int]) -> str:
    return ".".join(map(str, cc))


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without collecting garbage, a third of the time where millions of objects live until a kernel is compiled."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _fixed(cc: tuple[int, int]) -> Iterator[None]:
    """Compile for one compute capability with the same options in every process, one thread at a time.

    Numba asks the current device for the target of a device function, and takes the options of the process that defined
    the function.
    """
    of_class = _dispatcher.CUDADispatcher

    def compile_fixed(self: Any, *arguments: Any) -> Any:
        self.targetoptions.update(OPTIONS)
        return compile_device(self, *arguments)

    def no_blas() -> None:
        raise ImportError("kernels call no BLAS")

    with global_compiler_lock:
        device, compile_device, blas = _dispatcher.get_current_device, of_class.compile_device, _linalg.ensure_blas
        config = {name: getattr(_config, name, value) for name, value in CONFIG.items()}
        _dispatcher.get_current_device = lambda: _types.SimpleNamespace(compute_capability=cc, id=0)
        of_class.compile_device = compile_fixed
        _linalg.ensure_blas = no_blas  # a tenth of the first call: Numba would import scipy.linalg
        vars(_config).update(CONFIG)
        try:
            with uncollected():
                yield
        finally:
            _dispatcher.get_current_device, of_class.compile_device, _linalg.ensure_blas = device, compile_device, blas
            vars(_config).update(config)


def compile_ptx(kernel: Kernel, target: str = EMULATED_TARGET) -> str:
    """PTX of `kernel` for `target`, from the cache if the same code was compiled before.

    Raises: CompileError where the kernel is bound to another architecture, or the compiler rejects its CUDA C++.
    """
    target = architecture_target(kernel.architecture, target, kernel.name)
    return _compile_once(kernel, target, _ptx_key(kernel, target))


def _ptx_key(kernel: Kernel, target: str) -> str:
    if isinstance(kernel.function, CudaFunction):
        compilers = f"NVRTC {_nvrtc(nvrtc.nvrtcVersion())}"
    else:
        compilers = f"{numba_cuda.__version__} {nvjitlink.version()}"  # NVVM, which writes PTX, is of the same release
    with uncollected():
        return _key(f"{kernel_identity(kernel)} {target} {compilers}")


def _key(text: str) -> str:
    return hashlib.sha256(f"{KEY_VERSION} {text}".encode()).hexdigest()


def is_cached(kernel: Kernel, target: str) -> bool:
    """Whether the PTX and the machine code of `kernel` for `target` are cached."""
    ptx = cache.load(_ptx_key(kernel, architecture_target(kernel.architecture, target, kernel.name)), ".ptx")
    return ptx is not None and cache.load(_assembled_key(ptx.decode(), target), ".cubin") is not None


@functools.cache
def _compile_once(kernel: Kernel, target: str, key: str) -> str:
    write_ptx = _nvrtc_ptx if isinstance(kernel.function, CudaFunction) else _numba_ptx
    return cache.load_or_make(key, ".ptx", lambda: write_ptx(kernel, target).encode()).decode()


def _numba_ptx(kernel: Kernel, target: str) -> str:
    cc = capability(target)
    with _fixed(cc):
        code, _ = cuda.compile(
            kernel.function,
            kernel.signature,
            device=False,
            abi="numba",
            cc=(*cc, "a") if target.endswith("a") else cc,
            output="ptx",
            fastmath=kernel.fast_math,
            launch_bounds=kernel.launch_bounds,
            **OPTIONS,
        )
    return code


def _nvrtc(answer: tuple[Any, ...]) -> Any:
    """The result of a call of NVRTC. Raises: CompileError."""
    code, *values = answer
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC answered {code.name}")
    return values[0] if len(values) == 1 else tuple(values)


def nvrtc_options(fast_math: bool, target: str) -> list[str]:
    """Options of NVRTC: nvcc's defaults (-O3, contracted multiply-adds), and fast-math where it is asked for."""
    options = [f"--gpu-architecture={target.replace('sm', 'compute')}"]
    return options + ["--use_fast_math"] * fast_math + ["--define-macro=MARKS"] * mark.enabled()


def _nvrtc_ptx(kernel: Kernel, target: str) -> str:
    function = kernel.function
    assert isinstance(function, CudaFunction)
    options = nvrtc_options(kernel.fast_math, target)
    program = _nvrtc(nvrtc.nvrtcCreateProgram(function.text.encode(), f"{function.name}.cu".encode(), 0, [], []))
    try:
        (code,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytearray(_nvrtc(nvrtc.nvrtcGetProgramLogSize(program)))
            _nvrtc(nvrtc.nvrtcGetProgramLog(program, log))
            text = log.rstrip(b"\0").decode(errors="replace")
            raise CompileError(f"{function.name} for {target}: NVRTC answered {code.name}\n{text}")
        ptx = bytearray(_nvrtc(nvrtc.nvrtcGetPTXSize(program)))
        _nvrtc(nvrtc.nvrtcGetPTX(program, ptx))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return ptx.rstrip(b"\0").decode()


def entry_name(ptx: str) -> str:
    """The mangled name of the one kernel in `ptx`."""
    match = re.search(r"\.entry\s+([\w$]+)", ptx)
    if not match:
        raise CompileError("the PTX has no .entry")
    return match[1]


def assembler_of(ptx: str) -> str:
    """The assembler of a kernel: ptxas, which assembles whole programs as nvcc does by default; nvJitLink for the
    kernels of `flash` that do without setmaxnreg and tensor maps, as they were measured.

    nvJitLink assembles relocatable code, which may have other registers for the same PTX.
    """
    whole = not OF_FLASH.search(ptx) or "setmaxnreg" in ptx or OPENED_MAP.search(ptx)
    return PTXAS if whole else NVJITLINK


def assemble(ptx: str, target: str) -> tuple[bytes, str]:
    """Machine code (cubin) of a PTX text and the assembler's log. Raises: CompileError with the log."""
    bound = ARCHITECTURE.search(ptx)
    target = architecture_target(bound and bound[1], target, "the PTX")
    return (_by_ptxas if assembler_of(ptx) == PTXAS else _by_nvjitlink)(ptx, target)


def _by_nvjitlink(ptx: str, target: str) -> tuple[bytes, str]:
    options = [f"-arch={target}", "-Xptxas=-v"]
    if nvjitlink.version() >= (13, 0):  # some linkers log nothing without it; those of CUDA 12 print everything
        options.append("-verbose")
    handle = nvjitlink.create(len(options), options)
    try:
        data = ptx.encode()
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "kernel.ptx")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        raise CompileError(f"{target}: {error}\n{log.decode(errors='replace')}") from error
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin), log.decode(errors="replace")


OPENED_MAP = re.compile(r"fence\.proxy\.tensormap::generic\.acquire\.gpu \[(%rd\d+)\], 128;")


def maps_by_value(ptx: str) -> str:
    """`ptx` with tensor maps as arguments of 128 bytes in place of their addresses: Numba has no such type."""
    for register in dict.fromkeys(OPENED_MAP.findall(ptx)):
        load = re.search(rf"ld\.param\.u64\s+{register}, \[([\w$]+)\];", ptx)
        if not load:
            raise CompileError(f"a tensor map in {register} is no argument")
        declared = rf"\.param\s+\.u64\s[^,()]*?{re.escape(load[1])}\b"
        ptx = re.sub(declared, f".param .align 64 .b8 {load[1]}[{MAP_BYTES}]", ptx)
        ptx = ptx.replace(load[0], f"mov.b64 {register}, {load[1]}; cvta.param.u64 {register}, {register};")
    return OPENED_MAP.sub("", ptx)


@functools.cache
def _ptxas() -> tuple[str, str]:
    """The path of ptxas and its release, such as "13.0.88". Raises: CompileError where none is installed."""
    path = find_nvidia_binary_utility("ptxas")
    if path is None:
        raise CompileError("no ptxas is installed, which assembles the kernels: install the package nvidia-cuda-nvcc")
    said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    if not (release := re.search(r"V(\d+\.\d+\.\d+)", said)):
        raise CompileError(f"{path} does not say its release: {said.strip() or 'nothing'}")
    return str(path), release[1]


def _by_ptxas(ptx: str, target: str) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory() as folder:
        text, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        text.write_text(maps_by_value(ptx))
        command = [_ptxas()[0], f"-arch={target}", "-v", str(text), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise CompileError(f"{target}: {done.stderr or done.stdout}")
        return cubin.read_bytes(), done.stderr + done.stdout


@functools.lru_cache(maxsize=8)
def assembled(ptx: str, target: str) -> bytes:
    """Machine code of `ptx` for `target`, from the cache if the same text was assembled before."""
    return cache.load_or_make(_assembled_key(ptx, target), ".cubin", lambda: assemble(ptx, target)[0])


def build(kernels: Iterable[Kernel], target: str) -> None:
    """Compile kernels, and assemble each while the next is compiled. Raises: CompileError."""
    with ThreadPoolExecutor(1) as assembler:
        done = [assembler.submit(assembled, compile_ptx(kernel, target), target) for kernel in kernels]
    for each in done:
        each.result()


def _assembled_key(ptx: str, target: str) -> str:
    release = _ptxas()[1] if assembler_of(ptx) == PTXAS else nvjitlink.version()
    return _key(f"{target} {assembler_of(ptx)} {release}\n{maps_by_value(ptx)}")


@functools.cache
def resources(kernel: Kernel, target: str) -> Resources:
    """Registers, spills, stack and static shared memory of `kernel` on `target`. Raises: CompileError."""
    ptx = compile_ptx(kernel, target)
    return reported(assemble(ptx, target)[1], ptx)


def reported(log: str, ptx: str) -> Resources:
    """Resources of the one kernel of `ptx` by an assembler's log. Raises: CompileError where it does not say them."""

    def numbers(pattern: str) -> list[int]:
        return [int(found) for found in re.findall(pattern, log)]

    registers, spills = numbers(r"[Uu]sed (\d+) registers"), numbers(r"(\d+) bytes spill (?:stores|loads)")
    if not registers:
        raise CompileError(f"the assembler does not say how many registers {entry_name(ptx)} uses:\n{log}")
    return Resources(
        registers=registers[0],
        spill_bytes=sum(spills) if spills else None,
        stack_bytes=next(iter(numbers(r"(\d+) bytes stack frame")), None),
        static_shared_bytes=sum(int(size) for size in STATIC_SHARED.findall(ptx)),
    )


def blocks_per_sm(launch: Launch, target: str, used: Resources | None = None) -> int:
    """How many blocks of `launch` one SM of `target` holds at a time; 0 where not even one fits.

    `used` is what another build of its kernel uses. Raises: CompileError for a target whose limits are not known.
    """
    cc = capability(target)
    if cc not in LIMITS:
        raise CompileError(f"the limits of {target} are not known; known: {', '.join(TARGETS)}")
    limits, used = LIMITS[cc], used or resources(launch.kernel, target)
    warps = -(-math.prod(launch.block) // 32)
    registers_per_warp = -(-used.registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    warps_by_registers = limits.registers // WARP_GROUPS // registers_per_warp * WARP_GROUPS
    shared = launch.dynamic_bytes + used.static_shared_bytes + limits.reserved_shared_bytes
    shared = -(-shared // SHARED_UNIT) * SHARED_UNIT
    by_shared = limits.shared_bytes // shared if shared else limits.blocks
    return int(min(limits.blocks, limits.warps // warps, warps_by_registers // warps, by_shared))
