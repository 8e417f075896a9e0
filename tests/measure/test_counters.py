"""Hardware counters without a card: a stand-in for ncu, with which anything may go wrong; what is made of counters."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from analysis import tables
from analysis.measure import counters
from analysis.measure.counters import GROUPS, METRICS, Spoiled, Task, merge, missing, parse, tidy
from analysis.measure.refused import REFUSED
from analysis.measure.studies import STUDIES
from analysis.models import counter_agreement, profiles, roofline, targets
from analysis.records import files, published
from analysis.records.current import today
from analysis.records.files import append_rows, gpu_folder, problem_columns, read_table, write_table
from analysis.records.measured import Measured
from kernels import VERSIONS, Problem
from kernels.runtime.gpu import GpuError

HDIMS = (512, 2048, 4096, 8192, 16384)
SMALL = Problem("attention", 1, 4, seq_q=64, hdim=512)
TIME = "gpu__time_duration.sum"
GPU = "nvidia-h200"

CARD = {"name": "Test GPU", "slug": "test-gpu", "compute_capability": "9.0", "sms": 132}


# ---------------------------------------------------------------- measuring


class Ncu:
    """Answers as ncu does: every metric of a kernel is `value`, or `flushed` where it flushes caches before a pass; the
    kernels are those of the plans.

    `dies` ends the program when it launches that version, `refuses` has its launch refused, `hides` leaves its last
    kernel out, `tires` refuses it once caches are flushed. `lacks` are metrics that the GPU does not have, `forbidden`
    is a driver that keeps counters to itself.
    """

    def __init__(self) -> None:
        self.value, self.flushed = "1,000", "4,000"
        self.calls: list[list[str]] = []
        self.dies = self.refuses = self.hides = self.tires = ""
        self.lacks: set[str] = set()
        self.forbidden = False

    def __call__(self, command: list[str], **_: object) -> SimpleNamespace:
        asked = command[command.index("--metrics") + 1].split(",")
        log, folder = Path(command[command.index("--log-file") + 1]), Path(command[-1])
        if self.lacks & set(asked):
            log.write_text("".join(f"==ERROR== Failed to find metric {name}\n" for name in self.lacks & set(asked)))
            return SimpleNamespace(returncode=1, stdout="", stderr="")
        todo = json.loads((folder / "tasks.json").read_text())
        self.calls.append([version for version, _ in todo])
        names: list[str] = []
        outcomes: list[list[str] | str] = []
        for version, columns in todo:
            kernels = [launch.kernel.name for launch in VERSIONS[version](Problem(**columns)).launches]
            if version == self.dies:
                return SimpleNamespace(returncode=-11, stdout="", stderr="Segmentation fault")
            if version == self.refuses or (version == self.tires and "all" in command):
                outcomes.append("the CUDA driver answered CUDA_ERROR_INVALID_VALUE to a launch")
                continue
            outcomes.append(kernels)
            names += kernels[: -1 if version == self.hides else None]
        (folder / "outcomes.json").write_text(json.dumps(outcomes))
        value = self.flushed if command[command.index("--cache-control") + 1] == "all" else self.value
        log.write_text("==ERROR== ERR_NVGPUCTRPERM\n" if self.forbidden else page(asked, names, value))
        return SimpleNamespace(returncode=0, stdout="", stderr="")


def page(metrics: list[str], kernels: list[str], value: str) -> str:
    """ncu's raw CSV page, behind a line that is not of it."""
    table = [["ID", "Kernel Name", *metrics], ["", "", *("ns" if name == TIME else "" for name in metrics)]]
    table += [[str(number), f"_Z{name}", *(value for _ in metrics)] for number, name in enumerate(kernels)]
    return "\n".join(["==PROF== Connected", *(",".join(f'"{cell}"' for cell in row) for row in table)]) + "\n"


@pytest.fixture
def ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ncu:
    """A card and its profiler; what is measured goes to `tmp_path`."""
    stand_in = Ncu()
    monkeypatch.setattr(counters, "identity", lambda: CARD)
    monkeypatch.setattr(counters, "environment", dict)
    monkeypatch.setattr(counters, "profiler", lambda: "ncu")
    monkeypatch.setattr(counters, "device_target", lambda: "sm_90")
    monkeypatch.setattr(counters, "compile_all", lambda pairs, target: None)
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    monkeypatch.setattr(counters.subprocess, "run", stand_in)
    return stand_in


def recorded(folder: Path) -> set[tuple[str, int, float]]:
    """Version, head dim and time of every launch recorded."""
    frame = read_table(folder / "test-gpu" / "counters.csv", "counters").query("metric == @TIME")
    return set(zip(frame["version"], frame["hdim"], frame["value"]))


def command(versions: str, *more: str) -> int:
    return counters.main(["--study", "log", "--versions", versions, *more])


def test_counters_of_the_matched_study_are_of_the_card_at_hand(ncu: Ncu, tmp_path: Path) -> None:
    assert counters.main(["--study", "log,matched", "--versions", "attention_online"]) == 0
    frame = read_table(tmp_path / "test-gpu" / "counters.csv", "counters")
    heads = frame.groupby("study")[["hdim", "heads"]].apply(lambda rows: dict(rows.drop_duplicates().to_numpy()))
    assert heads["matched"] == {512: 11, 2048: 11, 4096: 6, 8192: 3}
    assert heads["log"] == {512: 4, 2048: 4, 4096: 2, 8192: 1, 16384: 1}


def test_all_that_the_book_shows_is_profiled_unless_something_is_named(
    ncu: Ncu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[counters.Task] = []
    monkeypatch.setattr(counters, "_profile_all", lambda path, wanted, *_: asked.extend(wanted))
    assert counters.main([]) == 0
    of_v8 = {task.problem for task in asked if task.version == "rope_v8"}
    assert of_v8 == set(STUDIES["beyond"].problems) >= set(targets.COUNTED_AT)
    assert {task.study for task in asked} >= {"log", "fp16", "ablation", "control", "matched", "beyond"}
    assert {task.version for task in asked} >= set(targets.COUNTED) and len(asked) == len(set(asked))
    asked.clear()
    assert counters.main(["--versions", "rope_v8"]) == 0 and {task.version for task in asked} == {"rope_v8"}


def test_only_what_is_missing_or_stale_is_profiled(ncu: Ncu, tmp_path: Path) -> None:
    assert command("attention_online") == 0
    first = recorded(tmp_path)
    assert {hdim for _, hdim, _ in first} == set(HDIMS)
    ncu.value, ncu.calls = "2", []
    assert command("attention_online,attention_online_fixed") == 0
    assert {version for call in ncu.calls for version in call} == {"attention_online_fixed"}
    assert first < recorded(tmp_path)
    path = tmp_path / "test-gpu" / "counters.csv"
    rows = read_table(path, "counters").to_dict("records")
    write_table(path, "counters", [{**row, "source_hash": "0" * 16} if row["hdim"] == 512 else row for row in rows])
    ncu.value, ncu.calls = "3", []
    assert command("attention_online") == 0
    assert ncu.calls == [["attention_online"]] * len(GROUPS)
    values = {(hdim, value) for version, hdim, value in recorded(tmp_path) if version == "attention_online"}
    assert values == {(512, 3.0), *((hdim, 1000.0) for hdim in HDIMS[1:])}
    assert command("attention_online", "--all") == 0
    assert {value for version, _, value in recorded(tmp_path) if version == "attention_online"} == {3.0}
    assert {row for row in recorded(tmp_path) if row[0] == "attention_online_fixed"}


def test_cold_bytes_are_those_read_behind_a_flush(ncu: Ncu, tmp_path: Path) -> None:
    assert command("attention_online") == 0
    profiled = profiles.launches(tmp_path / "test-gpu")
    for name in ("dram_read_bytes", "dram_write_bytes"):
        assert set(profiled[name]) == {1000.0} and set(profiled[f"{name}_cold"]) == {4000.0}


@pytest.mark.parametrize("fault", ["dies", "refuses", "hides", "tires"])
def test_a_version_that_fails_spoils_no_other(
    fault: str, ncu: Ncu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setattr(ncu, fault, "attention_atomics")
    assert command("attention_atomics,attention_baseline,attention_online") == 1
    found = {(version, hdim) for version, hdim, _ in recorded(tmp_path)}
    assert found == {(v, hdim) for v in ("attention_baseline", "attention_online") for hdim in HDIMS}
    said = capsys.readouterr().err
    reason = {"dies": "Segmentation fault", "hides": "ncu saw 0 kernels"}.get(fault, "CUDA_ERROR_INVALID_VALUE")
    assert f"attention_atomics on {SMALL}: " in said and reason in said and "attention_baseline" not in said


def test_what_was_recorded_outlives_a_crash(ncu: Ncu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody interrupts in the second of three parts."""
    monkeypatch.setattr(counters, "CHUNK", 2)

    def interrupted(command: list[str], **options: object) -> SimpleNamespace:
        if len(ncu.calls) == len(GROUPS):
            raise KeyboardInterrupt
        return ncu(command, **options)

    monkeypatch.setattr(counters.subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command("attention_online")
    kept = recorded(tmp_path)
    assert len(kept) == 2
    monkeypatch.setattr(counters.subprocess, "run", ncu)
    ncu.calls, ncu.value = [], "2"
    assert command("attention_online") == 0
    assert kept < recorded(tmp_path) and len(recorded(tmp_path)) == 5
    assert sum(map(len, ncu.calls)) == 3 * len(GROUPS)


def test_a_profiler_that_may_not_read_counters_is_refused(ncu: Ncu, capsys: pytest.CaptureFixture[str]) -> None:
    ncu.forbidden = True
    assert command("attention_online") == REFUSED
    assert "the driver keeps them for administrators (ERR_NVGPUCTRPERM)" in capsys.readouterr().err
    assert len(ncu.calls) == 1


def test_a_profiler_that_never_works_is_not_tried_with_every_problem(
    ncu: Ncu, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def broken(command: list[str], **_: object) -> SimpleNamespace:
        tried.append(1)
        return SimpleNamespace(returncode=9, stdout="", stderr="no such driver")

    monkeypatch.setattr(counters.subprocess, "run", broken)
    assert counters.main(["--study", "log"]) == 1
    said = capsys.readouterr().err
    assert "counters: nothing can be profiled; attention_" in said and "no such driver" in said
    assert len(tried) < 40


def test_what_cannot_be_asked_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    monkeypatch.setattr(counters, "identity", lambda: CARD)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    assert command("attention_abacus") == 1
    assert "no version is called 'attention_abacus'" in capsys.readouterr().err
    assert command("attention_online", "--all") == REFUSED
    assert "Nsight Compute (ncu) is neither on PATH nor at /nowhere/bin/ncu" in capsys.readouterr().err


def test_a_metric_that_the_gpu_lacks_is_left_out(ncu: Ncu, tmp_path: Path) -> None:
    lacking = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    ncu.lacks = {lacking}
    assert command("attention_online") == 0
    found = set(read_table(tmp_path / "test-gpu" / "counters.csv", "counters")["metric"])
    assert found == set(METRICS) - {lacking}


def test_values_are_read_by_launch_and_metric() -> None:
    task = Task("log", "rope_separate", Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128))
    text = page([TIME, "dram__bytes_read.sum"], ["rotate_tokens", "attention"], "1,234.5").replace("1,234.5", "n/a", 1)
    launched = [(task, 0, "rotate_tokens"), (task, 2, "attention")]
    rows = tidy(parse(text), launched, (TIME, "dram__bytes_read.sum"), ", cold")
    assert [(row["launch"], row["metric"], row["value"], row["unit"]) for row in rows] == [
        (0, "dram__bytes_read.sum, cold", 1234.5, ""),
        (2, f"{TIME}, cold", 1234.5, "ns"),
        (2, "dram__bytes_read.sum, cold", 1234.5, ""),
    ]
    assert rows[0]["source_hash"] == today("rope_separate") and rows[0]["rotary_dim"] == 128
    with pytest.raises(Spoiled, match="ncu saw 2 kernels where 2 were launched, or in another order"):
        tidy(parse(text), launched[::-1], (TIME,), "")
    with pytest.raises(Spoiled, match="ncu printed no table: ==ERROR== nothing"):
        parse("==ERROR== nothing")


def test_rows_of_what_is_no_more_are_dropped_and_the_rest_is_in_the_order_of_the_log() -> None:
    row = {**problem_columns(SMALL), "launch": 0, "metric": TIME, "source_hash": "0" * 16, "value": 1.0}
    old = [{**row, "version": version} for version in ("attention_online", "attention_abacus", "attention_baseline")]
    old.append({**row, "version": "attention_baseline", "metric": "lts__t_sector_hit_rate.pct"})
    fresh = [{**row, "version": "attention_online", "value": 2.0}]
    found = merge(old, fresh)
    assert [(each["version"], each["value"]) for each in found] == [("attention_baseline", 1), ("attention_online", 2)]
    wanted = [Task("log", "attention_online", SMALL)]
    assert missing(wanted, found) == wanted
    assert missing(wanted, [{**row, "version": "attention_online", "source_hash": today("attention_online")}]) == []


def test_the_profiled_program_goes_on_behind_a_refused_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["attention_online", "attention_atomics", "attention_baseline"]
    (tmp_path / "tasks.json").write_text(json.dumps([(name, problem_columns(SMALL)) for name in names]))

    class Refused:
        def __init__(self, plan: Any, inputs: Any) -> None:
            self.kernel = plan.launches[0].kernel.function.__module__

        def launch(self) -> None:
            if self.kernel.endswith(".atomics"):
                raise GpuError("refused")

    monkeypatch.setattr(counters, "Program", Refused)
    monkeypatch.setattr(counters, "device_target", lambda: "sm_90")
    monkeypatch.setattr(counters, "make_inputs", lambda *_: {})
    for module, name in (
        (counters.torch.cuda, "synchronize"),
        *((counters.torch.cuda.profiler, n) for n in ("start", "stop")),
    ):
        monkeypatch.setattr(module, name, lambda: None)
    counters.launch_all(tmp_path)
    assert json.loads((tmp_path / "outcomes.json").read_text()) == [["attention"], "refused", ["attention"]]
    monkeypatch.setattr(counters.torch.cuda, "synchronize", lambda: (_ for _ in ()).throw(RuntimeError("lost")))
    counters.launch_all(tmp_path)
    assert json.loads((tmp_path / "outcomes.json").read_text()) == ["lost"]


# ---------------------------------------------------------------- what is made of them


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
