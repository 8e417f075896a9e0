"""Times in a slice of a card: which SMs and how many blocks on one, without a GPU."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from analysis.errors import MeasureError
from analysis.evidence.load import held
from analysis.measure import slices
from analysis.record.timers import Timer, timer_of
from analysis.studies import AUTHORS_TARGET, MAIN, SLICE, STUDIES
from kernels import VERSIONS
from kernels.runtime.compile import blocks_per_sm

Launch = Callable[[], None]


def test_timer_names_say_base_slice_and_cap() -> None:
    assert timer_of("device_warm") == Timer("device_warm")
    assert timer_of("launched@48") == Timer("launched", 48)
    assert timer_of("device_warm@48/6") == Timer("device_warm", 48, "6")
    assert timer_of("device_warm@56/sm_89") == Timer("device_warm", 56, "sm_89")
    for name in ("warm", "device_warm@", "device_warm@48/", "device_warm/6", "device_warm@48/ada"):
        with pytest.raises(ValueError, match="allowed: device_warm, device_cold, launched"):
            timer_of(name)


@pytest.mark.parametrize("misplaced", ["", "launched", "in a graph"])
def test_timing_fails_where_a_probe_runs_outside_the_slice(monkeypatch: pytest.MonkeyPatch, misplaced: str) -> None:
    where = {"launched": SLICE, "in a graph": SLICE, misplaced: 132}
    seen = []

    @contextlib.contextmanager
    def sliced(sms: int) -> Iterator[None]:
        yield None

    def capture(probe: Launch, stream: None) -> Launch:
        seen.append("in a graph")
        return probe

    def reached(launch: Callable[[Launch], None], sms: int) -> int:
        seen.append("launched")
        launch(lambda: None)
        return where[seen[-1]]

    monkeypatch.setattr(slices, "sliced", sliced)
    monkeypatch.setattr(slices, "reached", reached)
    if not misplaced:
        with slices.in_slice(SLICE, capture):
            assert seen == ["launched", "launched", "in a graph"]
        return
    refused = pytest.raises(MeasureError, match=f"48 SMs was asked for; a probe {misplaced} reaches 132")
    with refused, slices.in_slice(SLICE, capture):
        pass


@pytest.mark.parametrize("most", [3, 5, 6, 8])
def test_padded_shared_memory_caps_the_blocks_on_an_sm(most: int) -> None:
    plan = VERSIONS["rope_v7"](MAIN)
    whole = [blocks_per_sm(launch, "sm_90") for launch in plan.launches]
    capped = slices.capped(plan, dict.fromkeys(range(len(plan.launches)), most), "sm_90")
    assert [blocks_per_sm(launch, "sm_90") for launch in capped.launches] == [min(most, held) for held in whole]
    assert slices.capped(plan, {}, "sm_90") == plan


def test_cap_of_a_target_applies_where_its_sms_hold_fewer_blocks() -> None:
    pairs = [*STUDIES["slices"].pairs()]
    capped = [pair for pair in pairs if slices.applies(f"device_warm@{SLICE}/{AUTHORS_TARGET}", *pair, "sm_90")]
    assert 0 < len(capped) < len(pairs) and ("rope_v7", MAIN) not in capped
    for version, problem in capped:
        theirs, here = (held(version, problem, target) for target in (AUTHORS_TARGET, "sm_90"))
        found = slices.caps(timer_of(f"launched@{SLICE}/{AUTHORS_TARGET}"), version, problem, "sm_90")
        assert found and all(theirs[launch] == most < here[launch] for launch, most in found.items())
