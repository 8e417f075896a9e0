"""Intervals hold: of a run that was left out, on the record and where the variances are known."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.book.findings import closed
from analysis.evidence import pool
from analysis.measure.studies import CONDITIONS
from analysis.records.files import MEASURED, REFERENCE
from analysis.records.interval import TIE, Pool, fit, geometric_mean, half_width, mean, pool_of
from analysis.records.measured import Measured
from analysis.verdicts import expressions
from analysis.verdicts.facts import Facts
from analysis.verdicts.rule import AGREE, GAIN, interval
from tests.verdicts.test_measured import PROBLEM, TWO, add_run, folder

__all__ = ["folder"]
RECORD = MEASURED / REFERENCE
TIMERS = ("device_cold", "device_warm", "launched")
PROCESSES, RUNS = 5, 4


@pytest.fixture(scope="module")
def ratios() -> pd.DataFrame:
    return pool.ratios_of(RECORD)


def outside(ratios: pd.DataFrame) -> dict[str, float]:
    """The share of ratios of the runs left out that lie outside, by timer."""
    found = pool.coverage(ratios).groupby("timer")[["ratios", "outside"]].sum()
    return dict(found["outside"] / found["ratios"])


def test_at_most_one_in_twenty_ratios_of_a_run_left_out_lies_outside(
    ratios: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the timers that verdicts rest on. With cold caches cards differ by more than a left-out run can show."""
    shares = outside(ratios)
    assert set(shares) == set(TIMERS)
    assert max(shares[timer] for timer in {condition.timer for condition in CONDITIONS.values()}) <= 0.05
    monkeypatch.setattr(pool, "half_width", lambda *given: half_width(*given) / 2)
    assert all(share > 0.05 for share in outside(ratios).values())


def test_no_study_of_the_record_is_missed_by_more_than_one_in_ten(ratios: pd.DataFrame) -> None:
    """Not in the runs by which the way of pooling was chosen, and not in the others."""
    found = pool.coverage(ratios).groupby(["timer", "study", "chose"])[["ratios", "outside"]].sum()
    assert (found["outside"] / found["ratios"]).max() <= 0.1


def test_long_calls_have_a_pool_of_their_own(ratios: pd.DataFrame) -> None:
    """The launched times of short calls move several times as much as those of long ones."""
    known = pool.pooled(ratios)
    short, long = (pool_of(known, "launched", us) for us in (20.0, 500.0))
    assert short and long and short.between > 4 * long.between
    assert pool_of(known, "launched") == known["launched"] and pool_of({}, "launched", 20.0) is None


def test_a_share_has_one_interval_in_chapters_and_in_verdicts() -> None:
    facts, measured = Facts(RECORD), Measured.read(RECORD, "ablation")
    expression = 'closed("rope_v6b", "rope_v6b_all_threads", "rope_separate", 512, study="ablation", rotary="partial")'
    there = interval(expressions.measure(expression, facts, {}), facts.pools)
    here = closed(measured, "rope_v6b", "rope_v6b_all_threads", "rope_separate").by_hdim[512]
    assert here[:3] == pytest.approx(there[:3], rel=1e-4) and here.high - here.low > 0.02


def test_intervals_on_the_device_can_tell_a_tie(ratios: pd.DataFrame) -> None:
    """Most are narrower than the 3 % that are a tie; wider ones would hold by saying nothing."""
    half = pool.coverage(ratios).groupby("timer")["half"].max()
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


def test_the_pool_finds_a_known_variance_between_runs_and_errs_to_the_wide_side() -> None:
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
def test_where_runs_differ_the_interval_covers_no_less(between: float, within: float) -> None:
    logs = drawn(between, within)
    assert covered(logs) >= stats.binom.ppf(1e-4, 2000, 0.95)
    alone = half_width(logs[:, -2].var(1, ddof=1), PROCESSES)
    assert (np.abs(logs[:, -1].mean(1) - logs[:, -2].mean(1)) <= alone).mean() < 0.85  # within one run


def test_ratios_that_differ_in_their_variance_are_covered_together() -> None:
    """Half of them vary three times as much between runs as the others, as on a card."""
    logs = np.concatenate([drawn(0.002, 0.004, 1, 1000), drawn(0.006, 0.004, 2, 1000)])
    assert covered(logs) >= stats.binom.ppf(1e-4, 2000, 0.95)


def test_an_interval_by_hand() -> None:
    """Logarithms 0, 0.1, 0.2: variance 0.01 of three, t 4.3027; twice 0.02 + 0.01 / 3."""
    found = geometric_mean(np.exp([0.0, 0.1, 0.2]), Pool(0.02, 3))
    half = 4.30265 * math.sqrt(2 * (0.02 + 0.01 / 3))
    assert found == pytest.approx((math.exp(0.1), math.exp(0.1 - half), math.exp(0.1 + half), 3), rel=1e-5)
    assert mean([0.0, 0.1, 0.2], Pool(0.02, 3), gain=2.0).high == pytest.approx(
        0.1 + 4.30265 * math.sqrt(2 * (0.04 + 0.01 / 3)), rel=1e-5
    )
    assert geometric_mean(np.exp([0.0, 0.1, 0.2])).runs == 1


@pytest.mark.parametrize("values", [[1.5], [1.5, math.nan, 1.6]])
def test_one_process_or_nan_has_no_interval(values: list[float]) -> None:
    for known in (None, Pool(0.01, 3)):
        assert not geometric_mean(values, known).known


def add_runs(folder: Path, count: int, **more: str) -> None:
    for run in range(count):
        shift = 1.0 + 0.02 * (run % 2)
        add_run(
            folder, f"{run}", {TWO[0]: [20.0 * shift, 20.1 * shift, 20.2 * shift], TWO[1]: [10.0, 10.1, 10.0]}, **more
        )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_it_takes_two_complete_runs_to_say_more_than_one_run(folder: Path, count: int) -> None:
    add_runs(folder, count)
    add_run(folder, "9", {TWO[0]: [90.0, 91.0], TWO[1]: [10.0, 10.1]}, complete=False)
    found = Measured.read(folder)
    ratio = found.ratio(*TWO, PROBLEM)
    assert ratio and ratio.known
    if count < pool.RUNS:
        assert not found.pools and ratio.runs == 1 and found.covers() == "within one run"
    else:
        assert set(found.pools) == {"device_warm"} and ratio.runs == count and found.covers() == "for another run"
        assert ratio.high - ratio.low > 0.05 > 0  # 2 % between runs, of a ratio of two
    assert found.covers("launched") == "within one run"


def test_runs_of_other_code_are_no_runs_of_the_same(folder: Path) -> None:
    """One of today's code and two of older code, which is of two kinds: never two of one."""
    add_runs(folder, 1)
    for run, code in (("a", "1" * 16), ("b", "2" * 16)):
        add_run(folder, run, {TWO[0]: [50.0, 51.0], TWO[1]: [10.0, 10.1]}, source_hash=code)
    assert not pool.pools(folder)


def test_a_ratio_of_one_run_takes_in_what_others_know(folder: Path) -> None:
    add_runs(folder, 3)
    add_run(folder, "5", {"rope_v1c": [20.0, 20.1, 20.2], TWO[0]: [10.0, 10.1, 10.0]})
    found = Measured.read(folder).ratio("rope_v1c", TWO[0], PROBLEM)
    assert found and found.runs == 3
    assert found.high / found.low > math.exp(2 * half_width(0.0, 3, Pool(1e-4, 3)))


def test_a_share_of_a_gap_is_as_unsure_as_its_times_make_it(folder: Path) -> None:
    """A quarter of a gap of a fifth: of 1.25, 1.2 and 1 each moved by itself, by hand."""
    names = ("rope_v7", "rope_v1c", "rope_separate")
    add_run(folder, "1", dict(zip(names, ([1.25, 1.25], [1.2, 1.2], [1.0, 1.0]), strict=True)))
    facts = Facts(folder)
    ask = 'closed("rope_v7", "rope_v1c", "rope_separate", 512)'
    found = expressions.measure(ask, facts, {})
    # share f = (s - m) / (s - r) = 0.2; df / f: of s s/(s-m) - s/(s-r) = 20, of m -m/(s-m) = -24, of r r/(s-r) = 4
    assert found.attrs[GAIN] == pytest.approx(0.2**2 * (20**2 + 24**2 + 4**2) / 2, rel=0.05)
    speed = expressions.measure('speed("rope_v7", "rope_separate", 512)', facts, {})
    assert speed.attrs[GAIN] == pytest.approx(1.0, rel=1e-3)
    wide, narrow = (interval(each, {"device_warm": Pool(1e-6, 3)}) for each in (found, speed))
    assert (wide.high - wide.low) / wide.value > 20 * (narrow.high - narrow.low) / narrow.value
    near_nothing = pd.Series([1e-4, 1e-2], index=pd.Index(["1", "2"], name="device_warm"))
    near_nothing.attrs["share"] = True  # whose logarithms say nothing
    assert interval(near_nothing, {}).low < 0 < interval(near_nothing, {}).high < 0.1
    assert not facts.nudged and facts.us("rope_v7", 512).iloc[0] == 1.25
