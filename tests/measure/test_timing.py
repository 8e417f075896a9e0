"""How often a graph is replayed for a time, on a made-up device whose replays take what the test says."""

from types import SimpleNamespace

import pytest

from analysis.measure import timing
from kernels import Unsupported
from kernels.version import Buffer, Plan, Problem


class Device:
    """Every call of a program takes `us`; the first replay of a graph `start_us` more."""

    def __init__(self, us: float, start_us: float) -> None:
        self.us, self.start_us = us, start_us
        self.captured: list[int] = []
        self.replays = 0

    def capture(self, program: object, order: list[int]) -> SimpleNamespace:
        self.captured.append(len(order))
        return SimpleNamespace(calls=len(order), fresh=True, replay=self._count)

    def _count(self) -> None:
        self.replays += 1

    def replay_us(self, graph: SimpleNamespace, samples: int) -> list[float]:
        self.replays += samples
        first = self.start_us * graph.fresh
        graph.fresh = False
        return [graph.calls * self.us + (first if i == 0 else 0) for i in range(samples)]


def timed(monkeypatch: pytest.MonkeyPatch, us: float, copies: int, samples: int) -> tuple[Device, timing.Timing]:
    device = Device(us, start_us=50.0)
    monkeypatch.setattr(timing, "_capture", device.capture)
    monkeypatch.setattr(timing, "_replay_us", device.replay_us)
    monkeypatch.setattr(timing.torch.cuda, "synchronize", lambda: None)
    program = SimpleNamespace(launch=lambda copy: None)
    return device, timing.summarise(timing._time_graph(program, list(range(copies)), samples))


def test_a_short_kernel_fills_a_sample_by_many_calls_in_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    device, found = timed(monkeypatch, us=5.0, copies=1, samples=timing.SAMPLES)
    assert device.captured == [1, 60]
    assert (found.n, found.median_us) == (timing.SAMPLES, 5.0)


def test_a_long_graph_is_replayed_once_before_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    device, found = timed(monkeypatch, us=100.0, copies=61, samples=timing.COLD_SAMPLES)
    assert device.captured == [61] and (found.n, found.median_us) == (timing.COLD_SAMPLES, 100.0)
    assert device.replays == 1 + timing.COLD_SAMPLES
    device, found = timed(monkeypatch, us=5000.0, copies=61, samples=timing.COLD_SAMPLES)
    assert (device.replays, found.n) == (1 + timing.LEAST_SAMPLES, timing.LEAST_SAMPLES)


def test_what_the_start_of_a_graph_takes_makes_no_sample_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    device, found = timed(monkeypatch, us=290.0, copies=1, samples=timing.SAMPLES)
    assert device.captured == [1, 2] and found.median_us == 290.0


def test_copies_exceed_twice_the_l2_of_a_card_that_tells_it() -> None:
    plan = Plan(Problem("attention"), {"q": Buffer((1 << 20,))})
    assert timing.cold_copies(plan, {}, 60 << 20) == 31
    with pytest.raises(Unsupported, match="the size of the L2"):
        timing.cold_copies(plan, {}, 0)
