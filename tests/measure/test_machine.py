"""Fields that NVML does not answer stay empty, each on its own; its clocks are kept."""

from types import SimpleNamespace
from typing import Any

import pytest

from analysis.measure import machine
from analysis.measure.run import note_seen

REASONS, OLDER = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"


class NVMLError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An NVML with an answer for each entry; one without an answer refuses."""
    answers: dict[str, Any] = {
        "nvmlSystemGetDriverVersion": "580.1", "nvmlDeviceGetClockInfo": 1500, "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000, REASONS: 0,
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


def test_field_that_nvml_refuses_stays_empty_alone(nvml: dict[str, Any]) -> None:
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


def test_machine_without_nvml_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "opened", lambda card=None: None)
    assert machine.throttle() is None and machine.environment()["driver"] == "unknown"


@pytest.mark.parametrize(
    ("seen", "said"),
    [([set(), set()], "none"), ([{"power_cap"}, set(), {"a"}], "a+power_cap"), ([None, set()], "unknown")],
)
def test_throttling_of_processes_is_joined_in_the_run(seen: list[set[str] | None], said: str) -> None:
    row = {"throttle": "none"}
    for reasons in seen:
        note_seen(row, reasons)
    assert row == {"throttle": said}
