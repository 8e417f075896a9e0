"""Settings of the tests: no more threads than workers, and little garbage collection, a fifth of a compilation.

`--whole` runs the sweeps of tests/sampling.py in full, beside the sample that -m deep takes of them.
"""

import gc
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy and torch are imported


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="run sweeps in full that -m deep samples: hours")


# Parts of names of tests that share what takes seconds to set up: one worker has them all.
TOGETHER = "test_package.py", "test_intervals.py", "test_compare.py", "test_findings.py", "rotates_as", "of_one_block"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((name for name in TOGETHER if name in nodeid), nodeid)

    return Together(config, log) if config.getoption("dist") == "load" else None


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


def events(name: str, problem: Any, blocks: int | None) -> list[dict[str, int]]:
    """Counts of a version's launches by the marks in its kernels."""
    from analysis.measure import static
    from kernels import VERSIONS

    launches = static.work(VERSIONS[name](problem), blocks)
    return [{counter: n for counter, n in launch.items() if counter.startswith("event.")} for launch in launches]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a made-up card, with nothing measured."""
    from tests.evidence.made_up import make

    return make(tmp_path)


@pytest.fixture(scope="session")
def e() -> Any:
    """The evidence of the reference card."""
    from analysis.evidence import Evidence
    from analysis.record.files import REFERENCE

    return Evidence.load(REFERENCE)


@pytest.fixture(scope="session")
def counted_events() -> Iterator[Any]:
    """`events` in a process whose kernels are compiled with marks."""
    from kernels.device import mark

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), mark.enable) as pool:
        yield lambda *asked: pool.submit(events, *asked).result()
