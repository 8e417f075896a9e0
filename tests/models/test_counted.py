"""What is made of hardware counters: waits, bounds, the emulator beside the hardware, and the roofline."""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.evidence import Evidence
from analysis.evidence.current import today
from analysis.evidence.load import Record
from analysis.measure import counters
from analysis.models import counter_agreement, profiles, roofline
from analysis.record import published
from analysis.record.files import REFERENCE, gpu_folder, problem_columns
from kernels import Problem
from tests.models.card import make, record
from tests.rows import append_rows

SMALL = Problem("attention", 1, 4, seq_q=64, hdim=512)


def put_counters(folder: Path, version: str, problem: Problem, values: dict[str, float], launch: int = 0) -> None:
    """Counters of a launch by the names of `profiles.METRICS`."""
    row = {"run": "1", "study": "log", "version": version, **problem_columns(problem), "launch": launch}
    row |= {"kernel": "attention", "source_hash": today(version)}
    rows = [{**row, "metric": profiles.METRICS[name], "value": value} for name, value in values.items()]
    append_rows(folder / "counters.csv", "counters", rows)


def counted(version: str, problem: Problem, values: dict[str, float]) -> pd.DataFrame:
    row = {"version": version, **problem_columns(problem), "launch": 0, "target": "sm_90"}
    row |= {"source_hash": today(version)}
    return pd.DataFrame([{**row, "counter": name, "value": value} for name, value in values.items()])


STALLS = {f"stall_{reason}": 0.0 for reason in counters.STALLS}
IDLE = {**STALLS, "stall_selected": 1.0, "stall_barrier": 6.0, "stall_long_scoreboard": 3.0}
UNITS = {"dram_percent": 1.0, "l2_percent": 2.0, "l1_percent": 3.0, "issue_percent": 10.0}


def test_a_warps_time_is_shared_out_among_what_it_waits_for(tmp_path: Path) -> None:
    put_counters(tmp_path, "attention_online", SMALL, {**IDLE, "warps_percent": 25.0, "issue_percent": 40.0})
    (launch,) = profiles.launches(tmp_path).to_dict("records")
    shares = profiles.waits(launch)
    assert shares["other warps at a barrier"] == pytest.approx(0.6)
    assert shares["global or local memory"] == pytest.approx(0.3) and sum(shares.values()) == pytest.approx(1)
    # 10 warps wait at each instruction issued, of which there are 0.4 a cycle and scheduler: 4 times 4 of 64 warps
    assert list(profiles.coherence(profiles.launches(tmp_path), "sm_90")) == [pytest.approx(1.0)]
    assert math.isnan(launch["dram_percent"]) and not launch["stale"]
    every = profiles.waits({**launch, **dict.fromkeys(STALLS, 1.0)})
    of_group = {name: len(reasons) / len(counters.STALLS) for name, reasons in profiles.WAITS.items()}
    assert every == pytest.approx(of_group)  # each reason counts once, in one group


@pytest.mark.parametrize(
    ("changed", "sms", "word"),
    [
        ({}, 132, "latency: other warps at a barrier"),
        ({"stall_long_scoreboard": 30.0}, 132, "latency: global or local memory"),
        ({"l2_percent": 60.0, "l1_percent": 59.0}, 132, "L2"),
        ({"l1_percent": 88.0}, 132, "L1 and shared memory"),
        ({"dram_percent": 59.9}, 132, "latency: other warps at a barrier"),
        ({}, 1000, "too few blocks"),
        ({"issue_percent": 70.0}, 1000, "issue"),
    ],
)
def test_what_holds_a_launch_back(changed: dict[str, float], sms: int, word: str) -> None:
    """The launch has 256 blocks."""
    launch = {"version": "attention_online", "problem": SMALL, "launch": 0, **IDLE, **UNITS, **changed}
    assert profiles.bound(launch, sms) == word


def test_of_a_call_the_last_launch_and_of_rope_the_published_rotation(tmp_path: Path) -> None:
    for rotary_dim in (512, 128):
        for launch in range(3):
            problem = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=rotary_dim)
            put_counters(tmp_path, "rope_separate", problem, {"duration_ns": 100 * rotary_dim + launch}, launch)
    found = profiles.attention(profiles.at(profiles.launches(tmp_path), 512))
    assert list(found["duration_ns"]) == [12802.0]
    assert profiles.at(profiles.launches(tmp_path), 2048).empty


HARDWARE = {
    "l1_store_sectors": 50,
    "l1_load_sectors": 100,
    "dram_read_bytes_cold": 3200,
    "ffma": 30,
    "fadd": 20,
    "fmul": 20,
}
EMULATOR = {
    "global.write.sectors": 50, "global.write.sectors.out": 50, "global.read.sectors": 100, "inst.fma": 40,
    "global.read.sectors.q": 60, "global.unique_sectors.read": 100, "global.unique_sectors.write": 50, "inst.fp32": 20,
}  # fmt: skip


def ratios(folder: Path, emulator: dict[str, float]) -> dict[str, float]:
    counts = counter_agreement.counted_launches(counted("attention_online", SMALL, emulator))
    frame = counter_agreement.compare(profiles.launches(folder), counts)
    assert not frame["stale"].any() and set(frame["hdim"]) == {512}
    return dict(zip(frame["quantity"], frame["ratio"]))


def test_the_hardware_over_the_emulator(tmp_path: Path) -> None:
    put_counters(tmp_path, "attention_online", SMALL, HARDWARE)
    found = ratios(tmp_path, EMULATOR)
    assert found["sectors stored"] == found["sectors loaded"] == found["FLOP"] == found["sectors from DRAM"] == 1.0
    assert found["fused multiply-adds"] == pytest.approx(30 / 40)
    assert "special functions" not in found and "wavefronts of shared memory" not in found
    planted = ratios(tmp_path, {**EMULATOR, "global.read.sectors": 80, "inst.fma": 65})
    assert planted["sectors loaded"] == pytest.approx(100 / 80) and planted["FLOP"] == pytest.approx(100 / 150)
    assert planted["sectors stored"] == 1.0


def test_what_a_launch_wrote_itself_does_not_come_from_dram(tmp_path: Path) -> None:
    put_counters(tmp_path, "attention_online", SMALL, HARDWARE)
    reads_back = {**EMULATOR, "global.read.sectors.out": 50, "global.unique_sectors.read": 150}
    assert ratios(tmp_path, reads_back)["sectors from DRAM"] == 1.0


# ---------------------------------------------------------------- the roofline

MOVED = {"l2_to_l1_bytes": 16e6, "l1_store_sectors": 1e6, "dram_read_bytes_cold": 7e6, "dram_write_bytes_cold": 1e6}
WARM = {"dram_read_bytes": 1e6, "dram_write_bytes": 2e6}
SECTORS = {"global.read.sectors": 2e6, "global.unique_sectors.read": 5e5}
LARGE = Problem("attention", 1, 4, seq_q=64, hdim=2048)


@pytest.fixture
def e(tmp_path: Path) -> Evidence:
    """A card whose L2 brings 8 TB/s and whose DRAM 4 TB/s, and on which everything takes 10 us, or 20 us cold."""
    folder = make(tmp_path)
    record(folder, "log", {("attention_online", problem): 10.0 for problem in (SMALL, LARGE)}, cold=2.0)
    put_counters(folder, "attention_online", SMALL, MOVED | WARM)
    return Evidence.load(folder)


def test_bytes_are_the_counters_and_else_the_emulators_and_cold_ones_go_with_cold_times(e: Evidence) -> None:
    emulated = pd.concat([counted("attention_online", problem, SECTORS) for problem in (SMALL, LARGE)])
    frame = roofline.points(e, emulated).set_index(["hdim", "level"])
    assert list(frame["bytes_from"]) == ["counters", "counters", "emulator", "emulator"]
    assert list(frame["bytes"]) == [48e6, 8e6, 64e6, 16e6]
    assert frame["us"].tolist() == pytest.approx([10.0, 20.0] * 2, rel=1e-4) and not frame["stale"].any()
    small = frame.loc[(512, "l2")]  # 33.55 MFLOP; 0.7 FLOP a byte of 8 TB/s are 5.6 TFLOP/s
    assert small["tflops"] == pytest.approx(3.3554432, rel=1e-4)
    assert small["gb_s"] == pytest.approx(4800, rel=1e-4) and small["flop_per_byte"] == pytest.approx(33.554432 / 48)
    assert small["percent_of_roof"] == pytest.approx(100 * 3.3554432 / (8 * 33.554432 / 48), rel=1e-4)
    cold = roofline.points(replace(e, record=_card(e, fp32_tflops=3.0)), emulated).set_index(["hdim", "level"])
    assert cold.loc[(512, "dram"), "percent_of_roof"] == pytest.approx(100 * 1.6777216 / 3.0, rel=1e-4)
    assert "hardware counters or, where there are none, sectors counted by the emulator" in roofline.sources(frame)


def _card(e: Evidence, **ceilings: float) -> Record:
    record = Record(e.record.folder)
    record.gpu = {**record.gpu, "ceilings": {**record.gpu["ceilings"], **ceilings}}
    return record


def test_a_changed_kernel_makes_a_stale_point(e: Evidence) -> None:
    old = counted("attention_online", LARGE, SECTORS)
    stale = roofline.points(e, old.assign(source_hash="0" * 16)).set_index("hdim")["stale"]
    assert stale[LARGE.hdim].all() and not stale[SMALL.hdim].any()
    changed = profiles.launches(e.record.folder).assign(stale=True)
    stale = roofline.points(e, old, changed).set_index("hdim")["stale"]
    assert stale[SMALL.hdim].all() and not stale[LARGE.hdim].any()


def test_a_published_time_stands_below_its_cards_roof() -> None:
    said = published.load().set_index("id")["value"]
    assert roofline.RTX_4000_ADA.fp32_tflops == said["N295"] and roofline.RTX_4000_ADA.dram_gb_s == said["N296"]
    problem = Problem("attention", 1, 1, seq_q=16, hdim=8192)
    counts = counted("attention_online", problem, {"global.unique_sectors.read": 65536})
    (point,) = roofline.published_points(counted=counts).to_dict("records")
    # 8.39 MFLOP, 2.1 MB: 4 FLOP a byte of 360 GB/s are 1.44 TFLOP/s
    assert point["flop_per_byte"] == 4.0 and point["published_us"] == 194.0
    assert point["percent_of_roof"] == pytest.approx(100 * 8388608 / 194e-6 / 1.44e12)


def test_what_is_recorded_was_read_as_its_name_says() -> None:
    """DRAM in one pass with caches warm; passes that saw the same kernel."""
    profiled = profiles.launches(gpu_folder(REFERENCE))
    warm = profiled["dram_read_bytes"] / profiled["dram_read_bytes_cold"]
    assert (warm < 0.01).mean() > 0.9
    assert ((profiles.coherence(profiled, "sm_90") - 1).abs() < 0.1).mean() > 0.8
    assert not profiled[list(profiles.METRICS)].isna().any().any()
