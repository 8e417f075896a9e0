"""Where Nsight Compute is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..records.files import DataError
from .refused import Refused


class NoProfiler(Refused, DataError):
    """There is no ncu on this machine, or it may not read counters."""


def profiler() -> str:
    """Path of ncu. Raises: NoProfiler when there is none."""
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "ncu"
    found = shutil.which("ncu") or (str(home) if home.exists() else None)
    if not found:
        raise NoProfiler(f"Nsight Compute (ncu) is neither on PATH nor at {home}")
    return found
