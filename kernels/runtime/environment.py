"""What the kernels read of the process that imports them: its environment variables, and which Numba CUDA it has.

FUSED_PE_CACHE: the folder of compiled kernels; unset or empty, `~/.cache/fused-positional-embeddings`.
NUMBA_*: Numba reads these. `compile` compiles with its own options whatever they say; the simulator is refused here.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None where there is no home folder to keep them in."""
    with contextlib.suppress(RuntimeError):  # of pathlib, without HOME and without an entry of the user
        return Path(os.environ.get("FUSED_PE_CACHE") or "~/.cache/fused-positional-embeddings").expanduser().absolute()
    return None


def require_numba_cuda() -> None:
    """Make `numba.cuda` that of the package numba-cuda, as its .pth file does where Python has read it.

    Raises: ImportError, which says what to do, where that is too late, or Numba's simulator is on.
    """
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("_numba_cuda_redirector")
    from numba import config, cuda

    if config.ENABLE_CUDASIM:
        raise ImportError("NUMBA_ENABLE_CUDASIM is set; the kernels need a real numba.cuda: unset it")
    if "numba_cuda" not in str(cuda.__file__):
        todo = "restart Python (in a notebook: the kernel), so that numba-cuda takes its place"
        raise ImportError(f"numba.cuda comes from {cuda.__file__}, not from the package numba-cuda: {todo}")
