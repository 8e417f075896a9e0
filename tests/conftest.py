"""What the tests run with: no more threads than workers, and little garbage collection, a fifth of a compilation.

`--whole` runs the sweeps of tests/sampling.py in full, beside the sample that -m deep takes of them.
"""

import gc
import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy and torch are imported


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="run sweeps in full that -m deep samples: hours")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "whole: left out of a sample of a long sweep; runs with --whole alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--whole"):
        left_out = [item for item in items if item.get_closest_marker("whole")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("whole")]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
