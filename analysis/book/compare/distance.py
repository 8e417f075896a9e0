"""How far every published speedup is from what a card measures, under each condition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ...measure.studies import CONDITIONS, matched
from ...records.files import problem_columns
from ...records.interval import Ratio
from ...records.measured import Measured
from .speedups import measured_cell, stated


def distances(studies: Mapping[str, Measured | None], sms: int) -> pd.DataFrame:
    """A row for each condition and published speedup on a card of so many SMs; `studies` are its latest by name.

    The problem is the one that was measured. `factor` is the larger of measured over published and its inverse, so at
    least 1; where there is none `status` says why.
    """
    rows: list[dict[str, Any]] = []
    for name, (timer, study) in CONDITIONS.items():
        for speedup in stated():
            problem = matched(speedup.problem, sms) if study == "matched" else speedup.problem
            home = study or ("fp16" if problem.family == "fp16" else "log")
            found = measured_cell(studies.get(home), speedup, problem, timer)
            ratio = found.ratio or Ratio(math.nan, math.nan, math.nan)
            published = speedup.published.value
            rows.append(
                {
                    "condition": name,
                    "version": speedup.version,
                    "baseline": speedup.baseline,
                    **problem_columns(problem),
                    "status": found.status,
                    "published": published,
                    "measured": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "factor": max(ratio.value / published, published / ratio.value),
                    "stale": int(found.stale),
                }
            )
    return pd.DataFrame(rows)
