"""Slices of a card: a green context has some of its SMs, and what is launched to a stream of it runs on these alone.

    with sliced(48) as stream, torch.cuda.stream(stream):
        program.launch()

A green context changes no setting of the card, needs no privilege and ends with the process. A CUDA graph runs where
its launches were captured: capture on the stream of the slice. `require_sms` counts the SMs that a stream reaches.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator

import torch
from cuda.bindings import driver
from numba import types

from ..version import CudaFunction, Kernel, Launch, Unsupported
from .compile import compile_ptx
from .gpu import _check, device_target, load_ptx, multiprocessors, prepare_launch, require_gpu

BLOCKS_PER_SM, THREADS, SPIN = 64, 256, 20_000  # of the probe; a block stays for so many cycles, and others wait
PROBE = """
extern "C" __global__ void reached(unsigned *seen) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x == 0) seen[sm] = 1;
    for (long long begun = clock64(); clock64() - begun < SPIN;) {}
}
""".replace("SPIN", str(SPIN))
MAX_SMS = 1024  # more than any card has


@functools.cache
def _green(sms: int, device: int) -> torch.cuda.ExternalStream:
    """The stream of a green context, which lives as long as the process. Raises: Unsupported."""
    template = "a slice of {needed} SMs; this card and driver allow {allowed}"
    if not hasattr(driver, "cuGreenCtxCreate"):
        raise Unsupported("capability", sms, "no green contexts: cuda-bindings 12.4 or newer is needed", template)
    torch.zeros(1, device="cuda")  # makes torch's context
    try:
        place = _check(driver.cuDeviceGet(device))
        whole = _check(driver.cuDeviceGetDevResource(place, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
        groups, count, _ = _check(driver.cuDevSmResourceSplitByCount(1, whole, 0, sms))
        got = int(groups[0].sm.smCount) if count else 0
    except Exception as refusal:
        raise Unsupported("capability", sms, f"none: {refusal}", template) from refusal
    if got != sms:
        raise Unsupported("capability", sms, f"{got} as the nearest, of {multiprocessors(device)}", template)
    resources = _check(driver.cuDevResourceGenerateDesc([groups[0]], 1))
    green = _check(driver.cuGreenCtxCreate(resources, place, driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM))
    flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    return torch.cuda.ExternalStream(int(_check(driver.cuGreenCtxStreamCreate(green, flags, 0))))


@contextlib.contextmanager
def sliced(sms: int) -> Iterator[torch.cuda.ExternalStream]:
    """A stream of a slice of exactly `sms` SMs of the current device, behind and before all other work on it.

    Raises: Unsupported where the card or its driver makes no such slice.
    """
    stream = _green(sms, require_gpu().index)
    torch.cuda.synchronize()
    try:
        yield stream
    finally:
        torch.cuda.synchronize()


@functools.cache
def _probe() -> Kernel:
    return Kernel(CudaFunction("reached", PROBE), (types.CPointer(types.uint32),))


def reached(launch: Callable[[Callable[[], None]], None], sms: int) -> int:
    """How many SMs run the blocks of a probe that `launch` is given to launch, of a card or slice that has `sms`."""
    seen = torch.zeros(MAX_SMS, dtype=torch.int32, device="cuda")
    plan = Launch(_probe(), (BLOCKS_PER_SM * sms,), (THREADS,), ("seen",))
    torch.cuda.synchronize()
    launch(prepare_launch(load_ptx(compile_ptx(plan.kernel, device_target())), plan, [seen.data_ptr()]))
    torch.cuda.synchronize()
    return int(seen.sum())
