"""A made-up card with made-up times, for tests of what is read from records."""

import json
from pathlib import Path

import pytest

from analysis.evidence.current import today
from analysis.record.files import problem_columns
from kernels import Problem
from tests.rows import append_rows

CEILINGS = ("read_gb_s", "l2_read_gb_s", "fp32_tflops", "tensor_tflops", "empty_kernel_us", "empty_launch_us")
PROBLEM = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)
TWO = ("rope_separate", "rope_v7")


def add_run(
    folder: Path,
    run: str,
    times: dict[str, list[float]],
    complete: bool = True,
    source_hash: str = "",
    study: str = "log",
) -> None:
    """A run in which each version took `times` microseconds, a process each."""
    words = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "throttle", "commit")
    entry = dict.fromkeys((*words, "started_at", "finished_at"), "x")
    row = {"run": run, "study": study, "complete": complete, "seconds": 1.0, "sm_mhz_max": 1, "power_limit_w": 1}
    append_rows(folder / "runs.csv", "runs", [{**entry, **row}])
    common = {"run": run, "study": study, **problem_columns(PROBLEM), "measured_at": run}
    for version, values in times.items():
        mine = {**common, "version": version, "source_hash": source_hash or today(version), "status": "ok"}
        check = {"max_abs_err": 1e-7, "allowed_abs_err": 4e-7, "nan_share": 0.0}
        append_rows(folder / "checks.csv", "checks", [{**mine, **check, "inputs": i} for i in ("uniform", "sharp")])
        timed = [{**mine, "process": i, "timer": "device_warm", "median_us": t} for i, t in enumerate(values, 1)]
        append_rows(folder / "timings.csv", "timings", timed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gpu = {
        "name": "Test GPU",
        "slug": "test-gpu",
        "compute_capability": "9.0",
        "sms": 132,
        "ceilings": dict.fromkeys(CEILINGS, 1.0),
    }
    (tmp_path / "gpu.json").write_text(json.dumps(gpu))
    return tmp_path
