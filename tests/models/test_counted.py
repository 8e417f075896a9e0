"""What is made of hardware counters: waits, bounds, the emulator beside the hardware, and the roofline."""

import math
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from analysis import tables
from analysis.measure import counters
from analysis.models import counter_agreement, profiles, roofline
from analysis.records import published
from analysis.records.current import today
from analysis.records.files import append_rows, gpu_folder, problem_columns, read_table, write_table
from analysis.records.measured import Measured
from kernels import Problem

SMALL = Problem("attention", 1, 4, seq_q=64, hdim=512)
GPU = "nvidia-h200"


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
    of_group = {wait.name: len(wait.reasons) / len(counters.STALLS) for wait in profiles.WAITS}
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


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> Measured:
    """A card whose L2 brings 2 TB/s and whose DRAM 1 TB/s, and on which everything takes 10 us, or 20 us cold."""
    ceilings = {"l2_read_gb_s": 2000.0, "read_gb_s": 1000.0, "fp32_tflops": 3.0}
    found = Measured(
        GPU, {"name": "Test GPU", "sms": 1, "ceilings": ceilings}, {"run": "1"}, pd.DataFrame(), pd.DataFrame()
    )
    times = {"device_warm": SimpleNamespace(us=10.0), "device_cold": SimpleNamespace(us=20.0)}
    monkeypatch.setattr(Measured, "time", lambda self, version, problem, timer: times[timer])
    monkeypatch.setattr(Measured, "check", lambda self, version, problem: None)
    return found


def test_bytes_are_the_counters_and_else_the_emulators(evidence: Measured, tmp_path: Path) -> None:
    other = Problem("attention", 1, 4, seq_q=64, hdim=2048)
    sectors = {"global.read.sectors": 2e6, "global.unique_sectors.read": 5e5}
    emulated = pd.concat([counted("attention_online", problem, sectors) for problem in (SMALL, other)])
    read = {"l2_to_l1_bytes": 16e6, "l1_store_sectors": 1e6, "dram_read_bytes_cold": 7e6, "dram_write_bytes_cold": 1e6}
    put_counters(tmp_path, "attention_online", SMALL, read)
    frame = roofline.points(evidence, emulated, profiles.launches(tmp_path)).set_index(["hdim", "level"])
    assert list(frame["bytes_from"]) == ["counters", "counters", "emulator", "emulator"]
    assert list(frame["bytes"]) == [48e6, 8e6, 64e6, 16e6]
    small = frame.loc[(512, "l2")]  # 33.55 MFLOP; 0.7 FLOP a byte of 2 TB/s are 1.4 TFLOP/s
    assert small["tflops"] == pytest.approx(3.3554432) and small["flop_per_byte"] == pytest.approx(33.554432 / 48)
    assert small["percent_of_roof"] == pytest.approx(100 * 3.3554432 / (2 * 33.554432 / 48))
    assert frame.loc[(512, "dram"), "percent_of_roof"] == pytest.approx(100 * 1.6777216 / 3.0)  # below the fp32 ceiling
    assert "hardware counters or, where there are none, sectors counted by the emulator" in roofline.sources(frame)
    html = tables.points(frame.reset_index())._repr_html_()
    assert html.count(">emulator<") == 1 and "48.00<br><small>8.00</small>" in html


def test_a_changed_kernel_makes_a_stale_point(evidence: Measured, tmp_path: Path) -> None:
    old = counted("attention_online", SMALL, {"global.read.sectors": 10, "global.unique_sectors.read": 10})
    nothing = profiles.launches(Path("/nowhere"))
    assert not roofline.points(evidence, old, nothing)["stale"].any()
    assert roofline.points(evidence, old.assign(source_hash="0" * 16), nothing)["stale"].all()
    moved = ("l2_to_l1_bytes", "l1_store_sectors", "dram_read_bytes_cold", "dram_write_bytes_cold")
    put_counters(tmp_path, "attention_online", SMALL, dict.fromkeys(moved, 1.0))
    assert not roofline.points(evidence, old, profiles.launches(tmp_path))["stale"].any()
    rows = read_table(tmp_path / "counters.csv", "counters").to_dict("records")
    write_table(tmp_path / "counters.csv", "counters", [{**row, "source_hash": "0" * 16} for row in rows])
    assert roofline.points(evidence, old, profiles.launches(tmp_path))["stale"].all()


def test_the_datasheet_is_what_the_write_up_prints() -> None:
    said = published.load().set_index("id")["value"]
    assert roofline.RTX_4000_ADA.fp32_tflops == said["N295"] and roofline.RTX_4000_ADA.dram_gb_s == said["N296"]


def test_a_published_time_stands_below_its_cards_roof() -> None:
    problem = Problem("attention", 1, 1, seq_q=16, hdim=8192)
    frame = roofline.published_points(
        counted=counted("attention_online", problem, {"global.unique_sectors.read": 65536})
    )
    (point,) = frame.to_dict("records")  # 8.39 MFLOP, 2.1 MB: 4 FLOP a byte of 360 GB/s are 1.44 TFLOP/s
    assert point["flop_per_byte"] == 4.0 and point["published_us"] == 194.0
    assert point["percent_of_roof"] == pytest.approx(100 * 8388608 / 194e-6 / 1.44e12)


# ---------------------------------------------------------------- what is recorded, and how it is shown


def test_what_is_recorded_was_read_as_its_name_says() -> None:
    """DRAM in one pass with caches warm; passes that saw the same kernel."""
    profiled = profiles.launches(gpu_folder(GPU))
    warm = profiled["dram_read_bytes"] / profiled["dram_read_bytes_cold"]
    assert (warm < 0.01).mean() > 0.9
    assert ((profiles.coherence(profiled, "sm_90") - 1).abs() < 0.1).mean() > 0.8
    assert not profiled[list(profiles.METRICS)].isna().any().any()
