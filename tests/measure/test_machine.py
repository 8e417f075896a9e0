"""What NVML does not answer stays empty, each thing on its own; what it says of the clocks is kept."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.measure import machine
from analysis.measure.run import note_seen

REASONS, OLDER = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
PROCESSES = "nvmlDeviceGetComputeRunningProcesses"


class NVMLError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each entry of an NVML answers; one without an answer refuses."""
    answers: dict[str, Any] = {
        "nvmlSystemGetDriverVersion": "580.1", "nvmlDeviceGetClockInfo": 1500, "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000, REASONS: 0,
        PROCESSES: [SimpleNamespace(pid=pid) for pid in (10, 11, 12)],
    }  # fmt: skip

    class Library(SimpleNamespace):
        def __getattr__(self, name: str) -> Any:
            def answer(*_: Any) -> Any:
                if name not in answers:
                    raise NVMLError("Not Supported")
                return answers[name]

            return answer

    monkeypatch.setattr(machine, "opened", lambda card=None: (Library(NVMLError=NVMLError), "handle"))
    return answers


def test_each_thing_that_a_card_does_not_say_stays_empty_alone(nvml: dict[str, Any]) -> None:
    def known() -> tuple[Any, ...]:
        found = machine.environment()
        return found["driver"], found["sm_mhz_max"], found["power_limit_w"], machine.sm_mhz()

    assert known() == ("580.1", 1980, 700, 1500)
    del nvml["nvmlDeviceGetEnforcedPowerLimit"]
    assert known() == ("580.1", 1980, None, 1500)
    del nvml["nvmlDeviceGetClockInfo"], nvml["nvmlDeviceGetMaxClockInfo"]
    assert known() == ("580.1", None, None, None)


def test_reasons_of_throttling_have_names_also_from_an_older_driver(nvml: dict[str, Any]) -> None:
    assert machine.throttle() == frozenset()
    nvml[REASONS] = 1 | 4 | 32  # idle, and two that count
    assert machine.throttle() == {"power_cap", "thermal_slowdown"}
    del nvml[REASONS]
    assert machine.throttle() is None
    nvml[OLDER] = 8
    assert machine.throttle() == {"hardware_slowdown"}


def test_without_nvml_nothing_is_known_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "opened", lambda card=None: None)
    watch = machine.Watch()
    watch.look()
    watch.count()
    assert watch.seen == {"throttle": [], "readable": False, "others": None}
    row = {"throttle": "none"}
    note_seen(row, watch.seen)
    assert row == {"throttle": "unknown"} and machine.environment()["driver"] == "unknown"


def test_processes_of_others_are_told_from_ours(nvml: dict[str, Any]) -> None:
    assert machine.others(ours=[1, 2]) == 1  # three are listed under ids of the host, two are ours
    assert machine.others(ours=[1, 2, 3, 4]) == 0
    nvml[PROCESSES] = [SimpleNamespace(pid=pid) for pid in (os.getpid(), 77)]
    assert machine.others(ours=[os.getpid(), 5, 6]) == 1
    del nvml[PROCESSES]
    assert machine.others(ours=[]) is None


@pytest.mark.parametrize(("mask", "seen"), [(0, []), (4, ["power_cap"]), (4 | 32, ["power_cap", "thermal_slowdown"])])
def test_what_is_seen_around_timings_is_said_of_the_run(nvml: dict[str, Any], mask: int, seen: list[str]) -> None:
    nvml[REASONS] = mask
    watch = machine.Watch()
    watch.look()
    row = {"throttle": "none"}
    note_seen(row, watch.seen)
    for others in (2, 1):
        note_seen(row, {"throttle": [], "readable": True, "others": others})
    assert row == {"throttle": "+".join(seen) or "none", "other_processes": 2}
