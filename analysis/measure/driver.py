"""Which CUDA the NVIDIA driver takes, and the environment that fits it.

The Makefile runs this file by itself before there is an environment: it needs Python alone. Within one major release of
CUDA every driver runs what any compiler of it assembled, so the major release decides.
"""

import ctypes

LEAST_DRIVER = {13: "580.65.06", 12: "525.60.13"}  # for Linux, of each release there is a lock for (CUDA release notes)


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


if __name__ == "__main__":
    print(lock_cuda(driver_cuda()))
