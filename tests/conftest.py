"""What the tests run with: no more threads than workers, and little garbage collection, a fifth of a compilation."""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy and torch are imported


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
