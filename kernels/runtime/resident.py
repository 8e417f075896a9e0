"""What the ops keep on a card behind their launches, and for how long: all of it, in one place.

A CUDA graph replays the addresses that a launch was captured with, at any time later. So:

- Tables that an op makes, the rates of a base and the default slopes, stay at their addresses as long as the process,
  and are never written again; so do kernels that are loaded. Tables are made by the first call that needs them, and no
  capture can make one: it is refused.
- Once MOST_BYTES of tables are kept, a further one is its call's alone, and made again by the next.
- What a call allocates beside, its copies, counters and workspace, is torch's allocator's: it lives in the order of the
  stream or, under capture, as long as the graph.
- Tensors that a call is given are the caller's to keep, as those of any operation that is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

MOST_BYTES = 64 << 20  # on all cards together

_tables: dict[Any, torch.Tensor] = {}
_addresses: set[int] = set()  # of those that stay
_bytes = 0  # of them


def table(key: Any, device: torch.device, make: Callable[[], np.ndarray]) -> torch.Tensor:
    """The table of that key on a device, made where it is not there. Raises: RuntimeError under capture."""
    global _bytes
    found = _tables.get((key, device))
    if found is None:
        refuse_capture("a table")
        made = torch.from_numpy(make()).to(device)
        if _bytes + made.nbytes > MOST_BYTES:
            return made
        _bytes += made.nbytes
        found = _tables.setdefault((key, device), made)
        _addresses.add(found.data_ptr())
    return found


def stays(made: torch.Tensor) -> bool:
    """Whether it is a table that lives as long as the process."""
    return made.data_ptr() in _addresses


def capturing() -> bool:
    """Whether a CUDA graph is captured on the current stream."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def refuse_capture(needed: str) -> None:
    """Raises: RuntimeError while a CUDA graph is captured."""
    if capturing():
        raise RuntimeError(
            f"a CUDA graph is being captured, and this call needs {needed} that no call before it has made; "
            "make one call with the same arguments, on tensors alike, before the capture"
        )
