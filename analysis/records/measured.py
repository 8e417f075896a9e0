"""What was measured on one GPU, as callers knew it before `analysis.evidence`: on its way out."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernels import Problem

from ..evidence.current import complete_runs
from ..evidence.interval import pool_of
from ..evidence.pool import pools
from ..evidence.study import Study
from ..record import rows as measured_rows
from ..record import state_of
from ..record.files import DataError, gpu_folder, read_json, written
from .interval import Ratio, geometric_mean

CEILINGS = ("read_gb_s", "l2_read_gb_s", "fp32_tflops", "tensor_tflops", "empty_kernel_us", "empty_launch_us")


class Time(NamedTuple):
    """Microseconds of one call: the geometric mean of the processes' medians, the least and the largest of them.

    Geometric, so that two times of the same processes divide to their `Ratio`.
    """

    us: float
    low: float
    high: float

    @classmethod
    def of(cls, medians: pd.Series) -> Time:
        return cls(statistics.geometric_mean(medians), float(medians.min()), float(medians.max()))


def middle_us(times: Iterable[pd.Series]) -> float | None:
    """The geometric mean of times by process; None of none."""
    logs = [float(np.log(each).mean()) for each in times]
    return math.exp(statistics.mean(logs)) if logs else None


class Measured(Study):
    """The evidence of one GPU and study. `run`, `timings` and `checks` are those of its latest complete run."""

    @classmethod
    def load(cls, slug: str, study: str = "log") -> Measured:
        """Raises: DataError when the GPU is unknown, no run of the study is complete or a file is damaged."""
        return cls.read(gpu_folder(slug), study)

    @classmethod
    def read(cls, folder: Path, study: str = "log", before: str | None = None, run: str | None = None) -> Measured:
        """The latest complete run of a study under `folder`, or the latest before the run called `before`, or `run`.

        Read once, as the files stand: not to be changed.
        """
        return _read(folder, study, before, run, written(folder / "gpu.json"), state_of(folder, "checks", "timings"))

    @classmethod
    def _of(cls, folder: Path, study: str, before: str | None, run: str | None) -> Measured:
        gpu = read_json(folder / "gpu.json")
        missing = [name for name in CEILINGS if name not in gpu.get("ceilings", {})]
        if missing:
            raise DataError(f"{folder / 'gpu.json'}: ceiling {missing[0]!r} is missing")
        tables = {name: measured_rows(folder, name) for name in ("runs", "checks", "timings")}
        listed = tables["runs"]
        runs = complete_runs(listed[listed["run"] == run] if run else listed, before)
        if study not in runs:
            raise DataError(
                f"{folder / 'runs.csv'}: no run of study {study!r} is complete; `make measure` brings one to its end"
            )
        return cls(folder.name, gpu, runs[study], tables["checks"], tables["timings"], pools(folder))

    @classmethod
    def nothing(cls, slug: str, study: str) -> Measured:
        """The evidence of a study that has no complete run: no rows. Raises: DataError as `load`."""
        folder = gpu_folder(slug)
        checks, timings = (measured_rows(folder, name) for name in ("checks", "timings"))
        return cls(folder.name, read_json(folder / "gpu.json"), {"study": study}, checks, timings)

    def time(self, version: str, problem: Problem, timer: str = "device_warm") -> Time | None:
        rows = self.medians(version, problem, timer)
        return None if rows.empty else Time.of(rows)

    def ratio(self, a: str, b: str, problem: Problem, timer: str = "device_warm") -> Ratio | None:
        """How many times longer `a` takes than `b`: the speedup of b over a."""
        over, under = self.medians(a, problem, timer), self.medians(b, problem, timer)
        if not over.index.equals(under.index):
            over, under = over.align(under, join="inner")
        return self.mean(over / under, timer, over, under)

    def mean(self, values: Sequence[float] | np.ndarray, timer: str, *times: pd.Series) -> Ratio | None:
        """The geometric mean of positive values by process, with its interval; None of none.

        `times` are those that the values were computed from; they say how long a call takes.
        """
        if not len(values):
            return None
        return geometric_mean(np.asarray(values), pool_of(self.pools, timer, middle_us(times)))


@functools.lru_cache(maxsize=128)
def _read(folder: Path, study: str, before: str | None, run: str | None, *state: tuple[int, ...]) -> Measured:
    return Measured._of(folder, study, before, run)
