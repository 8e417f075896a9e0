"""What this machine answers before anything runs on its GPU or takes memory of it."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernels.runtime.cache import FOLDER

from ..records import files
from .refused import Refused, toolkit

BOUND = ("torch", "nvidia-nvjitlink", "nvidia-nvvm")  # packages that ask for a driver of their CUDA version
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
PARAMETERS = Path("/proc/driver/nvidia/params")
CAP_SYS_ADMIN = 21


@dataclass(frozen=True)
class Machine:
    """What a machine answers; None where it does not. CUDA versions are (major, minor), sizes bytes."""

    name: str | None = None
    target: str = ""
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    needs_cuda: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    torch_sees_it: bool = True
    memory: int | None = None
    free_memory: int | None = None
    processes: tuple[str, ...] | None = None
    ncu: str | None = None
    counters_allowed: bool | None = None
    sanitizer: str | None = None
    free_disk: Mapping[str, int] = field(default_factory=dict)


def _version(number: int) -> tuple[int, int]:
    """CUDA's way of counting: 13020 is 13.2."""
    return number // 1000, number % 1000 // 10


def _driver() -> dict[str, Any]:
    """What the CUDA driver says of itself and of the first GPU, whether or not torch can use it."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    number, device, nbytes = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    found: dict[str, Any] = {}
    if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value:
        found["driver_cuda"] = _version(number.value)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return found
    name, (major, minor) = ctypes.create_string_buffer(256), (ctypes.c_int(), ctypes.c_int())
    cuda.cuDeviceGetName(name, 256, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, device)
    if cuda.cuDeviceTotalMem_v2(ctypes.byref(nbytes), device) == 0:
        found["memory"] = nbytes.value
    return {
        **found,
        "name": name.value.decode(),
        "target": f"sm_{major.value}{minor.value}",
        "uuid": _uuid(cuda, device),
    }


def _uuid(cuda: Any, device: ctypes.c_int) -> str:
    raw = (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGetUuid(raw, device)
    text = bytes(raw).hex()
    return "GPU-" + "-".join(text[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))


def _nvml(uuid: str) -> dict[str, Any]:
    """What NVML says: the driver's own version, free memory and the processes on the GPU, each where it answers."""
    found: dict[str, Any] = {}
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no NVML, or none that fits the driver
        return found
    with contextlib.suppress(pynvml.NVMLError):
        found["driver"] = pynvml.nvmlSystemGetDriverVersion()
    with contextlib.suppress(pynvml.NVMLError):
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        found["free_memory"] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).free)
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        found["processes"] = tuple(_process(each.pid) for each in running if each.pid != os.getpid())
    return found


def _process(pid: int) -> str:
    with contextlib.suppress(OSError):
        return f"{Path(f'/proc/{pid}/comm').read_text().strip()} ({pid})"
    return str(pid)


def _needs_cuda() -> dict[str, tuple[int, int]]:
    """The CUDA versions that what is installed was built with."""
    found = {BOUND[0]: torch.version.cuda}
    for name in BOUND[1:]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return {name: (int(v.split(".")[0]), int(v.split(".")[1])) for name, v in found.items() if v}


def counters_allowed(parameters: str | None, status: str) -> bool | None:
    """Whether this process may read counters, by the driver's parameters and /proc/self/status; None: not said."""
    if parameters is None:
        return None
    said = dict(line.split(": ", 1) for line in parameters.splitlines() if ": " in line)
    if "RmProfilingAdminOnly" not in said:
        return None
    capabilities = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return said["RmProfilingAdminOnly"] == "0" or bool(int(capabilities, 16) >> CAP_SYS_ADMIN & 1)


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        return path.read_text()
    return None


def _free(path: Path) -> int:
    """Free bytes where a folder is, or would be."""
    while not os.path.exists(path):  # False as well where it may not be asked
        path = path.parent
    return shutil.disk_usage(path).free


def gather() -> Machine:
    """What this machine answers."""
    found = _driver()
    uuid = found.pop("uuid", None)
    found |= _nvml(uuid) if uuid else {}
    for name, program in (("ncu", "ncu"), ("sanitizer", "compute-sanitizer")):
        with contextlib.suppress(Refused):
            found[name] = toolkit(program)
    return Machine(
        **found,
        needs_cuda=_needs_cuda(),
        torch_sees_it=torch.cuda.is_available(),
        counters_allowed=counters_allowed(_text(PARAMETERS), _text(Path("/proc/self/status")) or ""),
        free_disk={str(path): _free(path) for path in (files.MEASURED, FOLDER) if path},
    )
