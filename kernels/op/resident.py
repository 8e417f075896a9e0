"""Device memory that outlives a call of the ops, and for how long: all of it in this module.

A CUDA graph replays the addresses that a launch was captured with, at any later time. So:

- Tables that an op makes (rates of a base, default slopes) keep their addresses as long as the process lives and are
  never written again; the same holds for loaded kernels. The first call that needs a table makes it. That is refused
  during a capture.
- Once MOST_BYTES of tables exist, a further table belongs to its call alone, and the next call makes it again.
- What else a call allocates (copies, counters, workspace) comes from torch's allocator. It lives in stream order or,
  under capture, as long as the graph.
- The caller keeps the tensors that it passes alive, as for any captured operation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..runtime import gpu, kept

MOST_BYTES = 64 << 20  # on all GPUs together

_tables: dict[Any, torch.Tensor] = kept({})
_bytes: dict[int, int] = kept({})  # of the tables that are kept, by address


def table(key: Any, device: torch.device, make: Callable[[], np.ndarray]) -> torch.Tensor:
    """The table of `key` on a device, made by `make` on first use. Raises: RuntimeError under capture."""
    found = _tables.get((key, device))
    if found is None:
        refuse_capture("a table")
        made = torch.from_numpy(make()).to(device)
        if sum(_bytes.values()) + made.nbytes > MOST_BYTES:
            return made
        found = _tables.setdefault((key, device), made)
        _bytes[found.data_ptr()] = found.nbytes
    return found


def stays(made: torch.Tensor) -> bool:
    """Whether it is a table that lives as long as the process."""
    return made.data_ptr() in _bytes


def refuse_capture(needed: str) -> None:
    """Raise RuntimeError while a CUDA graph is being captured."""
    if gpu.DRIVER.capturing():
        raise RuntimeError(
            f"a CUDA graph is being captured, and this call needs {needed} that no call before it has made; "
            "make one call with the same arguments, on tensors and a slice of the card alike, before the capture"
        )
