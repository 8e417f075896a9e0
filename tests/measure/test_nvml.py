"""What NVML does not answer stays empty, each thing on its own; samples under throttle are not kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.measure import machine, nvml
from analysis.measure.crew import note_seen

BITS = {"SwPowerCap": 4, "HwSlowdown": 8, "SwThermalSlowdown": 32, "HwThermalSlowdown": 64, "HwPowerBrakeSlowdown": 128}
SAMPLES = [2.0] * 15
BOTH = ["hardware_slowdown", "thermal_slowdown"]


class NVMLError(Exception):
    pass


class Library(SimpleNamespace):
    """An NVML that refuses what is in `refused`."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvmlClocksEventReason"):
            return BITS[name.removeprefix("nvmlClocksEventReason")]
        if name in self.missing:
            raise AttributeError(name)

        def answer(*_: Any) -> Any:
            if name in self.refused:
                raise NVMLError("Not Supported")
            return self.answers[name]

        return answer


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    processes = [SimpleNamespace(pid=pid) for pid in (10, 11, 12)]
    answers = {
        "nvmlSystemGetDriverVersion": "580.1", "nvmlDeviceGetClockInfo": 1500, "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000, "nvmlDeviceGetCurrentClocksEventReasons": 0,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0, "nvmlDeviceGetComputeRunningProcesses": processes,
        "nvmlDeviceGetGraphicsRunningProcesses": processes[:1],
    }  # fmt: skip
    library = Library(answers=answers, refused=set(), missing=set())
    monkeypatch.setattr(nvml, "_opened", lambda: (library, "handle"))
    yield library


def test_each_thing_that_a_card_does_not_say_stays_empty_alone(library: Library) -> None:
    asked = {
        "nvmlSystemGetDriverVersion": nvml.driver, "nvmlDeviceGetClockInfo": nvml.sm_mhz,
        "nvmlDeviceGetMaxClockInfo": nvml.sm_mhz_max, "nvmlDeviceGetEnforcedPowerLimit": nvml.power_limit_w,
    }  # fmt: skip
    assert [ask() for ask in asked.values()] == ["580.1", 1500, 1980, 700]
    for name in asked:
        library.refused = {name}
        assert [name for name, ask in asked.items() if ask() is None] == [name]
    known = machine.environment()
    assert known["driver"] == "580.1" and known["power_limit_w"] is None and known["sm_mhz_max"] == 1980


def test_reasons_of_throttling_have_names_also_from_an_older_driver(library: Library) -> None:
    assert nvml.throttle() == frozenset()
    library.answers["nvmlDeviceGetCurrentClocksEventReasons"] = 1 | 4 | 32  # idle, and two that count
    assert nvml.throttle() == {"power_cap", "thermal_slowdown"}
    library.missing = {"nvmlDeviceGetCurrentClocksEventReasons"}
    library.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = 8
    assert nvml.throttle() == {"hardware_slowdown"}
    library.refused = {"nvmlDeviceGetCurrentClocksThrottleReasons"}
    assert nvml.throttle() is None


def test_without_nvml_nothing_is_known_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_opened", lambda: None)
    watch = nvml.Watch()
    assert watch.steady(lambda: SAMPLES) == (SAMPLES, 0)
    watch.count()
    assert watch.seen == {"throttle": [], "readable": False, "others": None}
    row = {"throttle": "none"}
    note_seen(row, watch.seen)
    assert row == {"throttle": "unknown"}


def test_processes_of_others_are_told_from_ours(library: Library) -> None:
    assert nvml.others(ours=[1, 2]) == 1  # three are listed under ids of the host, two are ours
    assert nvml.others(ours=[1, 2, 3, 4]) == 0
    library.answers["nvmlDeviceGetComputeRunningProcesses"] = [SimpleNamespace(pid=pid) for pid in (os.getpid(), 77)]
    assert nvml.others(ours=[os.getpid(), 5, 6]) == 2  # 77, and 10 which draws
    library.refused = {"nvmlDeviceGetComputeRunningProcesses"}
    assert nvml.others(ours=[]) == 1
    library.refused |= {"nvmlDeviceGetGraphicsRunningProcesses"}
    assert nvml.others(ours=[]) is None


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    taken: list[float] = []
    monkeypatch.setattr(nvml.time, "sleep", taken.append)
    return taken


def throttling(monkeypatch: pytest.MonkeyPatch, *looks: str) -> None:
    """What the card says at each look; afterwards what it said last."""
    left = list(looks)
    monkeypatch.setattr(nvml, "throttle", lambda: frozenset(filter(None, [left.pop(0) if len(left) > 1 else left[0]])))


@pytest.mark.parametrize(
    ("looks", "discarded", "seen", "waits"),
    [
        (("", "thermal_slowdown", "", "hardware_slowdown", "", ""), 30, BOTH, [2, 4]),
        (("thermal_slowdown", ""), 15, ["thermal_slowdown"], [2]),  # before the samples
        (("power_cap",), 0, ["power_cap"], []),  # noted, and kept
    ],
)
def test_samples_under_throttle_are_taken_again_and_counted(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float], looks: tuple[str, ...], discarded: int, seen: list[str],
    waits: list[float],
) -> None:  # fmt: skip
    throttling(monkeypatch, *looks)
    watch = nvml.Watch()
    assert watch.steady(lambda: SAMPLES) == (SAMPLES, discarded)
    assert watch.seen["throttle"] == seen and pauses == waits
    row = {"throttle": "none"}
    note_seen(row, watch.seen)
    note_seen(row, {"throttle": [], "readable": True, "others": 2})
    note_seen(row, {"throttle": [], "readable": True, "others": 1})
    assert row == {"throttle": "+".join(seen), "other_processes": 2}


def test_a_card_that_goes_on_throttling_gives_an_error_and_ends(monkeypatch: Any, pauses: list[float]) -> None:
    throttling(monkeypatch, "thermal_slowdown")
    watch = nvml.Watch()
    for _ in range(100):
        with pytest.raises(nvml.Throttled, match="in every attempt: thermal_slowdown") as caught:
            watch.steady(lambda: SAMPLES)
        assert caught.value.discarded == 4 * 15
    assert sum(pauses) <= nvml.MOST_PAUSES_S + 8


# ---------------------------------------------------------------- ceilings


def test_ceilings_fit_small_and_odd_cards() -> None:
    gib = 2**30
    assert machine.stream_bytes(139 * gib) == 4 * gib  # as on the reference card
    assert 2 * machine.stream_bytes(3 * gib) <= 3 * gib and machine.stream_bytes(1000) > 0
    assert [machine.matrix_side(free) for free in (139 * gib, 3 * gib, gib // 2, 0)] == [8192, 8192, 4096, 2048]
    assert [str(machine.tensor_dtype(major)) for major in (7, 8, 12)] == ["torch.float16", *["torch.bfloat16"] * 2]


@pytest.mark.parametrize(
    ("sms", "l2_bytes", "grids"),
    [(132, 62_914_560, [4, 8]), (40, 4 << 20, [1, 2]), (14, 1 << 20, [1]), (132, 0, [1])],
)
def test_what_is_read_of_the_l2_lies_in_it(sms: int, l2_bytes: int, grids: list[int]) -> None:
    rounds = machine._rounds(sms, machine.MOST_OF_L2 * l2_bytes)
    assert [blocks // sms for blocks, _ in rounds] == grids
    assert all(4 * floats < l2_bytes for _, floats in rounds) or not l2_bytes
