"""Evidence of a card: numbers with intervals, calculated with, compared and written."""

import math
from pathlib import Path

import numpy as np
import pytest

from analysis.evidence import Estimate, Estimates, Evidence, Known, every, maximum
from analysis.evidence.estimates import Sample
from analysis.evidence.interval import Pool, half_width
from tests.evidence.made_up import PROBLEM, TWO, add_run

BASE, OTHER = TWO
SLOW, MIDDLE, FAST = [30.0, 31.0, 30.5], [22.0, 21.5, 22.5], [20.0, 20.2, 19.9]
POOL = Pool(4e-4, 3)


def sample(version: str, times: list[float], pool: Pool | None = POOL, run: str = "1") -> Estimate:
    values = np.array(times)
    pools = {"device_warm": pool} if pool else {}
    return Estimate.of(Sample(run, values, {version: values}, (float(np.log(values).mean()),), "device_warm", pools))


def half(values: np.ndarray, gain: float) -> float:
    return float(half_width(values.var(ddof=1), len(values), POOL, gain))


def test_ratio_varies_between_runs_as_the_pool_says() -> None:
    logs = np.log(np.array(SLOW) / FAST)
    found = sample("a", SLOW) / sample("b", FAST)
    wide = half(logs, 1.0)
    assert (found.value, found.low, found.high) == pytest.approx(
        (math.exp(logs.mean()), math.exp(logs.mean() - wide), math.exp(logs.mean() + wide))
    )
    only = (sample("a", SLOW, None) / sample("b", FAST, None)).low
    assert only > found.low  # within one run
    own = sample("a", SLOW) / sample("a", FAST)  # of one version: between runs both times move alike
    assert own.high / own.value == pytest.approx(math.exp(half(logs, 0.0)))


def formula(slow: Estimate, middle: Estimate, fast: Estimate) -> Estimate:
    return maximum(2 * slow / (middle + 3 * fast), 1.5 - 0.2 * (fast / slow))


@pytest.mark.parametrize(
    "ask, positive",
    [(formula, True), (lambda slow, middle, fast: ((slow - middle) / (slow - fast)).as_share, False)],
    ids=["a composite", "a share of a gap"],
)
def test_interval_of_derived_quantity_follows_chain_rule(ask: object, positive: bool) -> None:
    """Its gain is that of times nudged one by one; the step of 1e-6 leaves errors of its order."""
    times, step = {"a": SLOW, "b": MIDDLE, "c": FAST}, 1e-6

    def values(nudged: str = "") -> np.ndarray:
        given = [sample(v, [t * (1 + step * (v == nudged)) for t in each]) for v, each in times.items()]
        found = ask(*given)  # type: ignore[operator]
        logs: np.ndarray = np.log(found.sample.values) if positive else found.sample.values
        return logs

    gain = sum(float(((values(v) - values()) / step).mean()) ** 2 for v in times) / 2
    found = ask(*(sample(v, each) for v, each in times.items()))  # type: ignore[operator]
    width = math.log(found.high / found.value) if positive else found.high - found.value
    assert width == pytest.approx(half(values(), gain), rel=1e-4)


def test_processes_are_compared_with_themselves(folder: Path) -> None:
    add_run(folder, "20260101T000000Z", {BASE: [20.0, 40.0], OTHER: [10.0, 20.0]})
    e = Evidence.load(folder)
    found = e.speedup(OTHER, BASE)
    assert found[512].value == pytest.approx(2) and found[512].low == pytest.approx(2)
    assert f"{found}" == "2.00×" and f"{found:slower}" == "−50 %" and f"{e.time(OTHER):.1}" == "14.1 µs"
    assert e.speedup(OTHER, BASE, problem=PROBLEM)[PROBLEM].value == pytest.approx(2)
    assert f"{e.share_closed(BASE, OTHER, OTHER)}" == "100 %"
    assert found[512].about.sources == ("timings of log, run 20260101T000000Z",)


def test_studies_that_were_measured_again_apart_meet_in_their_last_common_run(folder: Path) -> None:
    add_run(folder, "20260101T000000Z", {BASE: [20.0, 22.0], OTHER: [10.0, 11.0]})
    add_run(folder, "20260101T000000Z", {BASE: [30.0, 33.0], OTHER: [10.0, 11.0]}, study="controlled")
    add_run(folder, "20260102T000000Z", {BASE: [90.0, 90.0], OTHER: [10.0, 10.0]})
    e = Evidence.load(folder)
    apart = e.time(BASE, study="log") / e.time(BASE, study="controlled")
    assert apart.why == Known("undecided", "no process measured all of it")
    both = e.together("log", "controlled")
    found = both.time(BASE, study="log")[512] / both.time(BASE, study="controlled")[512]
    assert found.value == pytest.approx(2 / 3)
    assert found.about.sources == tuple(f"timings of {name}, run 20260101T000000Z" for name in ("log", "controlled"))


def test_missing_value_says_why(folder: Path) -> None:
    add_run(folder, "20260101T000000Z", {BASE: [20.0, 22.0]})
    e = Evidence.load(folder)
    missing = e.speedup(OTHER, BASE, hdim=(512, 2048))
    assert [missing[hdim].why.word for hdim in missing] == ["not measured"] * 2  # type: ignore[union-attr]
    assert f"{missing}" == "not measured" and not missing
    absent = e.time(BASE, study="matched")
    assert not absent and absent.why == Known("not measured", "study matched is not measured")
    assert e.time("attention_multi_query", hdim=2048)[2048].why.word == "not measured"  # type: ignore[union-attr]
    refused = e.shared_bytes("attention_multi_query", hdim=2048)  # it says what it would need
    assert refused[2048].value > 49152
    assert (Estimates({512: Estimate.exact(3)}) / Estimates({512: Estimate.exact(0)})).why == Known(
        "undecided", "it divides by a count of zero"
    )


def numbers(**by_key: Estimate) -> Estimates:
    return Estimates(by_key, "×")


def test_comparisons_tell_values_from_intervals_and_both_from_nothing() -> None:
    sure, near = Estimate(2.0, 1.9, 2.1), Estimate(1.05, 0.99, 1.11)
    none, refused = Estimate.none(Known("not measured")), Estimate.none(Known("unsupported", "too long"))

    def asked(found: object) -> tuple[bool | None, bool | None]:
        return found.values, found.intervals  # type: ignore[attr-defined]

    assert asked(numbers(a=sure, b=sure) > 1) == (True, True)
    assert asked(numbers(a=sure, b=near) > 1) == (True, False)
    assert asked(numbers(a=sure, b=near) < 1) == (False, False)
    assert asked(numbers(a=sure, b=none) > 1) == (None, None)
    assert asked(numbers(a=near, b=none) > 2) == (False, False)  # one that contradicts is enough
    assert asked(numbers(a=sure, b=refused) > 1) == (True, True)
    assert asked(numbers(b=refused) > 1) == (None, None)
    assert asked(numbers(a=sure) > numbers(a=near)) == (True, True)
    assert asked(every(numbers(a=sure) > 1, numbers(a=none) > 1)) == (None, None)
    assert len((numbers(a=sure, b=near) < 1).failed) == 2  # each that contradicts tells what it found
    assert not (numbers(a=sure, b=near) > 1).failed
    with pytest.raises(TypeError):
        bool(numbers(a=sure) > 1)
    with pytest.raises(ValueError, match="different keys"):
        numbers(a=sure) / numbers(b=sure)
