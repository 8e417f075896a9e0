"""The environment in .venv: made once, and again where its pins change or another release of CUDA is asked for.

The Makefile runs this file, by any Python, with 12, 13 or auto: the release that .venv is for, and at first the one
that fits the driver, as within one major release of CUDA every driver runs what any compiler of it assembled.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

LEAST_DRIVER = {13: "580.65.06", 12: "525.60.13"}  # for Linux, of each release there is a lock for (CUDA release notes)
LOCKS = {13: "requirements.txt", 12: "requirements-cuda12.txt"}
VENV = Path(".venv")
STAMP = VENV / ".stamp"  # says which release .venv is for
PYTHONS = (3, 11), (3, 13)
HERE = sys.version.split()[0]


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the driver takes, such as (12, 4); None without a driver."""
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if failed or not version.value else (version.value // 1000, version.value % 1000 // 10)


def lock_cuda(driver: tuple[int, int] | None) -> int:
    """The major release of CUDA whose lock fits `driver`; that of the newest lock where none does, or is no driver."""
    return max((cuda for cuda in LEAST_DRIVER if driver and cuda <= driver[0]), default=max(LEAST_DRIVER))


def run(*command: str) -> None:
    if code := subprocess.run(command).returncode:
        sys.exit(code)


def install(cuda: int, made: int | None) -> None:
    """Make or empty .venv, and install the lock of `cuda`. pip would leave compilers of another release in the folder.
    """
    python = str(VENV / "bin" / "python")
    if made not in (None, cuda) or not Path(python).exists():
        if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
            sys.exit(f"[environment] Python 3.11, 3.12 or 3.13 is needed; this is {HERE}: make PYTHON3=python3.12")
        print(f"[environment] creating .venv for CUDA {cuda} with Python {HERE}", flush=True)
        run(sys.executable, "-m", "venv", "--clear", str(VENV))
    print(f"[environment] installing {LOCKS[cuda]}: about a minute, several with the CUDA build of torch", flush=True)
    run(python, "-m", "pip", "--disable-pip-version-check", "install", "--requirement", LOCKS[cuda])
    (VENV / ".transformers").unlink(missing_ok=True)  # installed beside other pins
    STAMP.write_text(f"{cuda}\n")


def main(asked: str) -> None:
    if asked not in ("auto", *map(str, LOCKS)):
        sys.exit(f"CUDA={asked}: allowed are 12, 13 and auto")
    made = int(STAMP.read_text().strip() or 13) if STAMP.exists() else None
    cuda = int(asked) if asked != "auto" else made or lock_cuda(driver_cuda())
    if made != cuda or Path(LOCKS[cuda]).stat().st_mtime > STAMP.stat().st_mtime:
        install(cuda, made)


if __name__ == "__main__":
    main(sys.argv[1])
