"""What is said of a measurement that failed, and whether the card can go on after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from kernels import Unsupported
from kernels.runtime.gpu import GpuError

from .workers import MeasureError

OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"  # of the driver
MEMORY_ALLOCATION = 2  # the same of the runtime: cudaErrorMemoryAllocation
GB, MB = 1e9, 1e6


class Poisoned(MeasureError):
    """After this error the process can do nothing more on the card: another one has to go on."""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised of: libraries wrap what a card says."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def out_of_memory(error: BaseException) -> bool:
    """Whether the card, or the host, had too little memory, whoever says so: PyTorch, the runtime or the driver."""
    return any(
        isinstance(each, (torch.OutOfMemoryError, MemoryError))
        or (isinstance(each, GpuError) and each.code == OUT_OF_MEMORY)
        or (isinstance(each, torch.AcceleratorError) and getattr(each, "error_code", None) == MEMORY_ALLOCATION)
        for each in _chain(error)
    )


def free_bytes() -> int:
    """What the card has free, with what PyTorch keeps of it for later."""
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def said(error: BaseException) -> str:
    """The first line of an error, after its type where the message alone may say nothing."""
    line = (str(error).splitlines() or [""])[0]
    return line if isinstance(error, RuntimeError) and line else f"{type(error).__name__}: {line}".rstrip(": ")


def size(nbytes: int) -> str:
    """`"2.00 GB"`, `"0.31 MB"`."""
    return f"{nbytes / GB:.2f} GB" if nbytes >= GB / 10 else f"{nbytes / MB:.2f} MB"


def failure(error: Exception, needed: int | None, is_peer: bool) -> dict[str, Any]:
    """Status and reason of a measurement that `error` ended.

    Where memory lacks it is an error, with the bytes that its buffers need, if these are known, and those free. What
    else PyTorch raises for a peer is its refusal.

    Raises: Poisoned where the card does not answer any more.
    """
    if isinstance(error, Unsupported) and not out_of_memory(error):
        return {"status": error.status, "reason": str(error)}
    _require_answer(error)
    if out_of_memory(error):
        needs = "more" if needed is None else f"{size(needed)} of buffers and what it computes with"
        free = size(free_bytes())
        torch.cuda.empty_cache()
        return {"status": "error", "reason": f"out of memory: needs {needs}, free {free}: {said(error)}"}
    refusal = is_peer and isinstance(error, RuntimeError) and not isinstance(error, GpuError)
    return {"status": "unsupported" if refusal else "error", "reason": said(error)}


def _require_answer(error: Exception) -> None:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        raise Poisoned(said(error)) from error
