"""Intervals hold: of a run that was left out, on the record and where the variances are known."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.claims.rule import AGREE
from analysis.evidence import Evidence, pool
from analysis.evidence.compare import TIE
from analysis.evidence.interval import Pool, fit, half_width, pool_of
from analysis.record.files import REFERENCE
from analysis.studies import CONDITIONS
from tests.evidence.made_up import TWO, add_run

TIMERS = ("device_cold", "device_warm", "launched")
PROCESSES, RUNS = 5, 4


@pytest.fixture(scope="module")
def ratios() -> pd.DataFrame:
    return Evidence.load(REFERENCE).record.ratios


@pytest.fixture(scope="module")
def coverage(ratios: pd.DataFrame) -> pd.DataFrame:
    return pool.coverage(ratios)


def outside(coverage: pd.DataFrame) -> dict[str, float]:
    """The share of ratios of the runs left out that lie outside, by timer."""
    found = coverage.groupby("timer")[["ratios", "outside"]].sum()
    return dict(found["outside"] / found["ratios"])


def test_intervals_cover_a_run_left_out_in_19_of_20(
    ratios: pd.DataFrame, coverage: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the timers that verdicts rest on. With cold caches cards differ by more than a left-out run can show."""
    shares = outside(coverage)
    assert set(shares) == set(TIMERS)
    assert max(shares[condition.timer] for condition in CONDITIONS.values() if condition.timer) <= 0.05
    monkeypatch.setattr(pool, "half_width", lambda *given: half_width(*given) / 2)
    assert all(share > 0.05 for share in outside(pool.coverage(ratios)).values())


def test_intervals_miss_no_study_by_more_than_one_in_ten(coverage: pd.DataFrame) -> None:
    """Not in the runs by which the way of pooling was chosen, and not in the others; of fewer than ten, by one."""
    found = coverage.groupby(["timer", "study", "chose"])[["ratios", "outside"]].sum()
    assert (found["outside"] <= np.maximum(1, found["ratios"] / 10)).all()


def test_long_calls_have_a_pool_of_their_own() -> None:
    """The launched times of short calls move several times as much as those of long ones, on the H200."""
    known = pool.pooled(Evidence.load("nvidia-h200").record.ratios)
    short, long = (pool_of(known, "launched", us) for us in (20.0, 500.0))
    assert short and long and short.between > 4 * long.between
    assert pool_of({}, "launched", 20.0) is None


def test_intervals_on_the_device_can_tell_a_tie(coverage: pd.DataFrame) -> None:
    """Most are narrower than the 3 % that are a tie; wider ones would hold by saying nothing."""
    half = coverage.groupby("timer")["half"].max()
    assert half[["device_cold", "device_warm"]].max() < TIE < half["launched"] < AGREE * TIE**2


def drawn(between: float, within: float, seed: int = 1, count: int = 2000) -> np.ndarray:
    """Logarithms by ratio, run and process, of known standard deviations."""
    random = np.random.default_rng(seed)
    runs = random.normal(0.0, between, (count, RUNS, 1))
    return 0.3 + runs + random.normal(0.0, within, (count, RUNS, PROCESSES))


def fitted(logs: np.ndarray) -> Pool:
    count, runs, processes = logs.shape
    flat = logs.reshape(count * runs, processes)
    which = np.repeat(np.arange(count), runs)
    return fit(which, flat.mean(1), flat.var(1, ddof=1), np.full(len(flat), processes))


def covered(logs: np.ndarray, known: Pool | None = None) -> int:
    """Of how many ratios the last run, which is not pooled, lies in the interval of the run before."""
    half = half_width(logs[:, -2].var(1, ddof=1), PROCESSES, known or fitted(logs[:, :-1]))
    return int((np.abs(logs[:, -1].mean(1) - logs[:, -2].mean(1)) <= half).sum())


def test_pool_finds_a_known_variance_between_runs_and_errs_to_the_wide_side() -> None:
    """A mean square of 6000 degrees of freedom is known to 2 %: here to four deviations. The variance of five processes
    is as often half as twice what it should be, which makes what is between runs seem larger, never smaller."""
    error = 4 * math.sqrt(2 / (2000 * (RUNS - 1)))
    assert fitted(drawn(0.004, 0.0004)).between == pytest.approx(0.004**2, rel=error + 0.004)
    for within in (0.004, 0.01):
        assert fitted(drawn(0.004, within)).between >= (1 - error) * 0.004**2


@pytest.mark.parametrize(
    ("between", "within", "share"),
    [(0.0, 0.01, 0.95), (0.004, 1e-6, 2 * stats.norm.cdf(stats.t.ppf(0.975, PROCESSES - 1)) - 1)],
)
def test_with_a_known_pool_coverage_is_what_it_is_by_theory(between: float, within: float, share: float) -> None:
    """Of variance within alone the difference of two runs, over its error, is a t; of that between a normal."""
    low, high = stats.binom.ppf((1e-4, 1 - 1e-4), 2000, share)
    assert low <= covered(drawn(between, within), Pool(between**2, RUNS)) <= high


@pytest.mark.parametrize(("between", "within"), [(0.004, 0.004), (0.004, 0.0004), (0.02, 0.01)])
def test_interval_covers_no_less_where_runs_differ(between: float, within: float) -> None:
    logs = drawn(between, within)
    assert covered(logs) >= stats.binom.ppf(1e-4, 2000, 0.95)
    alone = half_width(logs[:, -2].var(1, ddof=1), PROCESSES)
    assert (np.abs(logs[:, -1].mean(1) - logs[:, -2].mean(1)) <= alone).mean() < 0.85  # within one run


def test_ratios_that_differ_in_their_variance_are_covered_together() -> None:
    """Half of them vary three times as much between runs as the others, as on a card."""
    logs = np.concatenate([drawn(0.002, 0.004, 1, 1000), drawn(0.006, 0.004, 2, 1000)])
    assert covered(logs) >= stats.binom.ppf(1e-4, 2000, 0.95)


def add_runs(folder: Path, count: int, **more: str) -> None:
    for run in range(count):
        shift = 1.0 + 0.02 * (run % 2)
        add_run(
            folder, f"{run}", {TWO[0]: [20.0 * shift, 20.1 * shift, 20.2 * shift], TWO[1]: [10.0, 10.1, 10.0]}, **more
        )


def test_runs_of_other_code_are_no_runs_of_the_same(folder: Path) -> None:
    """One of today's code and two of older code, which is of two kinds: never two of one."""
    add_runs(folder, 1)
    for run, code in (("a", "1" * 16), ("b", "2" * 16)):
        add_run(folder, run, {TWO[0]: [50.0, 51.0], TWO[1]: [10.0, 10.1]}, source_hash=code)
    assert not Evidence.load(folder).record.pools


@pytest.mark.parametrize("count", [1, 2, 3])
def test_pool_needs_two_complete_runs(folder: Path, count: int) -> None:
    add_runs(folder, count)
    add_run(folder, "9", {TWO[0]: [90.0, 91.0], TWO[1]: [10.0, 10.1]}, complete=False)
    found = Evidence.load(folder)
    ratio = found.speedup(*reversed(TWO))[512]
    if count < pool.RUNS:
        assert not found.record.pools and found.covers() == "within one run"
    else:
        assert set(found.record.pools) == {"device_warm"} and found.covers() == "for another run"
        assert ratio.high - ratio.low > 0.05 > 0  # 2 % between runs, of a ratio of two


def test_ratio_of_one_run_takes_in_what_others_know(folder: Path) -> None:
    add_runs(folder, 3)
    add_run(folder, "5", {"rope_v1c": [20.0, 20.1, 20.2], TWO[0]: [10.0, 10.1, 10.0]})
    found = Evidence.load(folder).speedup(TWO[0], "rope_v1c")[512]
    assert found.high / found.low > math.exp(2 * half_width(0.0, 3, Pool(1e-4, 3)))
