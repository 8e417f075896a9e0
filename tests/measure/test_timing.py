"""How often a graph is replayed for a time, on a made-up device whose replays take what the test says."""

import itertools
from collections.abc import Callable

import pytest

from analysis.measure import timing
from kernels import Unsupported
from kernels.version import Buffer, Plan, Problem


class Device:
    """Every call of a program takes `us`; the first replay of a graph `start_us` more."""

    def __init__(self, us: float, start_us: float) -> None:
        self.us, self.start_us, self.launched = us, start_us, 0
        self.captured: list[int] = []
        self.replays = 0

    def launch(self, copy: int) -> None:
        self.launched += 1

    def capture(self, work: Callable[[], None], stream: None) -> Callable[[], float]:
        before = self.launched
        work()
        calls = self.launched - before
        self.captured.append(calls)
        times = itertools.chain([calls * self.us + self.start_us], itertools.repeat(calls * self.us))

        def replay() -> float:
            self.replays += 1
            return next(times)

        return replay

    def elapsed_us(self, work: Callable[[], float], samples: int = 1) -> list[float]:
        return [work() for _ in range(samples)]


def timed(monkeypatch: pytest.MonkeyPatch, us: float, copies: int, samples: int) -> tuple[Device, list[float]]:
    device = Device(us, start_us=50.0)
    monkeypatch.setattr(timing, "capture", device.capture)
    monkeypatch.setattr(timing, "elapsed_us", device.elapsed_us)
    monkeypatch.setattr(timing.torch.cuda, "synchronize", lambda: None)
    return device, timing._time_graph(device, list(range(copies)), samples)


def test_short_kernel_fills_a_sample_by_many_calls_in_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    device, found = timed(monkeypatch, us=5.0, copies=1, samples=timing.SAMPLES)
    assert device.captured == [1, 60]
    assert found == [5.0] * timing.SAMPLES


def test_long_graph_is_replayed_once_before_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    device, found = timed(monkeypatch, us=100.0, copies=61, samples=timing.COLD_SAMPLES)
    assert device.captured == [61] and found == [100.0] * timing.COLD_SAMPLES
    assert device.replays == 1 + timing.COLD_SAMPLES
    device, found = timed(monkeypatch, us=5000.0, copies=61, samples=timing.COLD_SAMPLES)
    assert (device.replays, len(found)) == (1 + timing.LEAST_SAMPLES, timing.LEAST_SAMPLES)


def test_start_of_a_graph_shortens_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    device, found = timed(monkeypatch, us=290.0, copies=1, samples=timing.SAMPLES)
    assert device.captured == [1, 2] and found == [290.0] * timing.SAMPLES


def test_cold_copies_exceed_twice_the_l2() -> None:
    plan = Plan(Problem("attention"), {"q": Buffer((1 << 20,))})
    assert timing.cold_copies(plan, {}, 60 << 20) == 31
    with pytest.raises(Unsupported, match="the size of the L2"):
        timing.cold_copies(plan, {}, 0)
