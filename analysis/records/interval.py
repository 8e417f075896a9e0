"""A mean over processes with its confidence interval: the one place where statistics are computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
TIE = 1.03  # ratios this near to 1 are no difference


class Ratio(NamedTuple):
    """A geometric mean over the processes and its 95 % interval; without bounds (NaN) from a single process."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether it has an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))


def mean(values: Sequence[float] | np.ndarray) -> Ratio:
    """Arithmetic mean of one value or more with its t interval."""
    values = np.asarray(values, dtype=float)
    centre = float(values.mean())
    if len(values) < 2:
        return Ratio(centre, math.nan, math.nan)
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return Ratio(centre, float(centre - half), float(centre + half))


def geometric_mean(values: Sequence[float] | np.ndarray) -> Ratio:
    """Geometric mean of positive values with the t interval of their logarithms."""
    return Ratio(*(float(np.exp(end)) for end in mean(np.log(np.asarray(values, dtype=float)))))
