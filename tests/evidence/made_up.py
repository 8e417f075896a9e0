"""A made-up card with made-up times, for tests of what is read from records."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from analysis.evidence.current import identity
from analysis.record.files import problem_columns
from kernels import Problem
from tests.rows import add_rows

CEILINGS = {
    "read_gb_s": 4000.0, "l2_read_gb_s": 8000.0, "fp32_tflops": 60.0, "tensor_tflops": 800.0,
    "empty_kernel_us": 0.5, "empty_launch_us": 4.0,
}  # fmt: skip
GPU = {
    "compute_capability": "9.0", "sms": 132, "name": "Test GPU", "slug": "test-gpu", "l2_bytes": 60_000_000,
    "ceilings": CEILINGS,
}  # fmt: skip
PROBLEM = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)
TWO = ("rope_separate", "rope_v7")
NOISE = (0.99, 1.0, 1.01)  # of three processes, the same for all versions
WORDS = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "throttle", "commit", "started_at")
Times = Mapping[tuple[str, Problem], Sequence[float]]


def make(folder: Path) -> Path:
    """The folder of the card, with nothing measured."""
    path = folder / "test-gpu"
    path.mkdir()
    (path / "gpu.json").write_text(json.dumps(GPU))
    return path


def _add(
    folder: Path, run: str, study: str, times: Times, complete: bool = True, source_hash: str = "",
    wrong: Collection[str] = (), timer: str = "device_warm",
) -> None:  # fmt: skip
    """A run in which each version took so many microseconds, a process each."""
    row = {"run": run, "study": study, "complete": complete, "seconds": 1.0, "sm_mhz_max": 1, "power_limit_w": 1}
    add_rows(folder, "runs", [row | {"finished_at": "x", **dict.fromkeys(WORDS, "x")}])
    checks, timings = [], []
    for (version, problem), values in times.items():
        mine = {"run": run, "study": study, "version": version, **problem_columns(problem), "measured_at": run}
        mine |= {**identity(version), "status": "wrong" if version in wrong else "ok"}
        mine |= {"source_hash": source_hash} if source_hash else {}
        errors = {"max_abs_err": 1.5e-7, "allowed_abs_err": 4e-7, "nan_share": 0.0}
        checks += [{**mine, **errors, "inputs": kind} for kind in ("uniform", "sharp")]
        timings += [{**mine, "process": n, "timer": timer, "median_us": us} for n, us in enumerate(values, 1)]
    add_rows(folder, "checks", checks)
    add_rows(folder, "timings", timings)


def add_run(
    folder: Path, run: str, times: Mapping[str, Sequence[float]], complete: bool = True, source_hash: str = "",
    study: str = "log", timer: str = "device_warm",
) -> None:  # fmt: skip
    """A run on one problem in which each version took `times` microseconds, a process each."""
    warm = {(version, PROBLEM): values for version, values in times.items()}
    _add(folder, run, study, warm, complete, source_hash, timer=timer)


def record(
    folder: Path, study: str, times: Mapping[tuple[str, Problem], float | None], wrong: Collection[str] = ()
) -> None:
    """A complete run of a study, in which versions took so many microseconds; None: a version was not timed."""
    warm = {pair: [us * noise for noise in NOISE] if us else [] for pair, us in times.items()}
    _add(folder, "20260101T000000Z", study, warm, wrong=wrong)
