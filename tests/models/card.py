"""A made-up card, and times that were made up for it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from analysis.evidence.current import today
from analysis.record.files import problem_columns
from kernels import Problem
from tests.rows import append_rows

GPU = {
    "compute_capability": "9.0",
    "sms": 132,
    "name": "Test GPU",
    "slug": "test-gpu",
    "l2_bytes": 60_000_000,
    "ceilings": {
        "read_gb_s": 4000.0, "l2_read_gb_s": 8000.0, "fp32_tflops": 60.0, "tensor_tflops": 800.0,
        "empty_kernel_us": 0.5, "empty_launch_us": 4.0,
    },
}  # fmt: skip
NOISE = (0.99, 1.0, 1.01)  # of three processes, the same for all versions
WORDS = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "throttle", "commit", "started_at")


def make(folder: Path) -> Path:
    """The folder of the card, with nothing measured."""
    path = folder / "test-gpu"
    path.mkdir(exist_ok=True)
    (path / "gpu.json").write_text(json.dumps(GPU))
    return path


def record(
    folder: Path,
    study: str,
    times: Mapping[tuple[str, Problem], float | None],
    wrong: Collection[str] = (),
    cold: float = 0.0,
) -> None:
    """A complete run of a study, in which versions took so many microseconds, and `cold` times as many with caches
    flushed; None: a version was not timed."""
    row = {"run": "20260101T000000Z", "study": study, "complete": True, "seconds": 1.0}
    row |= {"sm_mhz_max": 1, "power_limit_w": 1, "finished_at": "x", **dict.fromkeys(WORDS, "x")}
    append_rows(folder / "runs.csv", "runs", [row])
    checks, timings = [], []
    for (version, problem), us in times.items():
        mine = {"run": row["run"], "study": study, "version": version, **problem_columns(problem), "measured_at": "1"}
        mine |= {"source_hash": today(version), "status": "wrong" if version in wrong else "ok"}
        errors = {"max_abs_err": 1.5e-7, "allowed_abs_err": 4e-7, "nan_share": 0.0}
        checks += [{**mine, **errors, "inputs": kind} for kind in ("uniform", "sharp")]
        for process, noise in enumerate(NOISE, 1):
            for timer, factor in (("device_warm", 1.0), ("device_cold", cold)):
                if us and factor:
                    timings.append({**mine, "process": process, "timer": timer, "median_us": us * noise * factor})
    append_rows(folder / "checks.csv", "checks", checks)
    append_rows(folder / "timings.csv", "timings", timings)
