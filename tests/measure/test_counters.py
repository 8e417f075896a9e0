"""Measuring hardware counters without a card: a stand-in for ncu, with which anything may go wrong."""

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from analysis import __main__ as command_line
from analysis.errors import REFUSED
from analysis.evidence.current import today
from analysis.measure import counters, run
from analysis.measure.counters import GROUPS, METRICS, ProfileError, Task, tidy
from analysis.record import files, rows
from analysis.record.files import problem_columns
from analysis.studies import STUDIES
from kernels import VERSIONS, Problem
from tests.measure.stub_card import CARD as STUB
from tests.measure.stub_card import compilers
from tests.rows import replace_rows

HDIMS = (512, 2048, 4096, 8192, 16384)
SMALL = Problem("attention", 1, 4, seq_q=64, hdim=512)
TIME = "gpu__time_duration.sum"

CARD = {**STUB, "name": "Test GPU", "slug": "test-gpu", "sms": 132}


class Ncu:
    """Answers as ncu does: every metric of each plan's kernels is `value`, or 4,000 where caches are flushed.

    `dies` ends the program when it launches that version, `tires` once caches are flushed, `hides` leaves its last
    kernel out. `lacks` are metrics that the GPU does not have, `forbidden`
    is a driver that keeps counters to itself, `broken` a profiler that never works.
    """

    def __init__(self) -> None:
        self.value = "1,000"
        self.calls: list[list[str]] = []
        self.dies = self.hides = self.tires = ""
        self.lacks: set[str] = set()
        self.locales: set[str] = set()
        self.forbidden = self.broken = False
        self.interrupts_at = -1

    def __call__(self, command: list[str], env: dict[str, str], **_: object) -> SimpleNamespace:
        self.locales.add(env["LC_ALL"])
        asked = command[command.index("--metrics") + 1].split(",")
        log, folder = Path(command[command.index("--log-file") + 1]), Path(command[-1])
        if self.lacks & set(asked):
            log.write_text("".join(f"==ERROR== Failed to find metric {name}\n" for name in self.lacks & set(asked)))
            return SimpleNamespace(returncode=1, stdout="", stderr="")
        if len(self.calls) == self.interrupts_at:
            raise KeyboardInterrupt
        todo = json.loads((folder / "tasks.json").read_text())
        self.calls.append([version for version, _ in todo])
        if self.broken:
            return SimpleNamespace(returncode=9, stdout="", stderr="no such driver")
        names: list[str] = []
        launched: list[list[str]] = []
        for version, columns in todo:
            kernels = [launch.kernel.name for launch in VERSIONS[version](Problem(**columns)).launches]
            if version == self.dies or (version == self.tires and "all" in command):
                return SimpleNamespace(returncode=-11, stdout="", stderr="Segmentation fault")
            launched.append(kernels)
            names += kernels[: -1 if version == self.hides else None]
        (folder / "launched.json").write_text(json.dumps(launched))
        value = "4,000" if command[command.index("--cache-control") + 1] == "all" else self.value
        log.write_text("==ERROR== ERR_NVGPUCTRPERM\n" if self.forbidden else page(asked, names, value))
        return SimpleNamespace(returncode=0, stdout="", stderr="")


def page(metrics: list[str], kernels: list[str], value: str) -> str:
    """ncu's raw CSV page, below a line that is not of it."""
    table = [["ID", "Kernel Name", *metrics], ["", "", *("ns" if name == TIME else "" for name in metrics)]]
    table += [[str(number), f"_Z{name}", *(value for _ in metrics)] for number, name in enumerate(kernels)]
    return "\n".join(["==PROF== Connected", *(",".join(f'"{cell}"' for cell in row) for row in table)]) + "\n"


@pytest.fixture
def ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ncu:
    """A card and its profiler; what is measured goes to `tmp_path`."""
    stand_in = Ncu()
    monkeypatch.setattr(run.workers, "answer", lambda work: CARD)
    monkeypatch.setattr(counters, "toolkit", lambda program: program)
    monkeypatch.setattr(counters, "compilers", compilers)
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    monkeypatch.setattr(counters.subprocess, "run", stand_in)
    return stand_in


def recorded(folder: Path) -> pd.DataFrame:
    return rows(folder / "test-gpu", "counters")


def times(folder: Path) -> set[tuple[str, int, float]]:
    """Version, head dim and time of every launch recorded."""
    frame = recorded(folder).query("metric == @TIME")
    return set(zip(frame["version"], frame["hdim"], frame["value"]))


def command(versions: str, *options: str) -> int:
    """Profile some versions on the problems of the documents, or all of these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counters, "PROFILED", (("log", tuple(filter(None, versions.split(","))), ()),))
        return command_line.main(["counters", *options])


def test_profiled_versions_are_those_of_the_book_at_the_cards_load() -> None:
    asked = counters.tasks(CARD["sms"])
    online = [task for task in asked if task.version == "attention_online"]
    for study, heads in (("matched", (11, 11, 6, 3)), ("log", (4, 4, 2, 1, 1))):
        assert [task.problem.heads for task in online if task.study == study] == list(heads)
    of_v8 = {task.problem for task in asked if task.version == "rope_v8"}
    assert of_v8 == {problem for problem in STUDIES["beyond"].problems if problem.hdim == 2048}
    at_2048 = {task.version for task in asked if task.problem.hdim == 2048}
    assert at_2048 >= {"attention_baseline", "sinusoidal_v5", "rope_v7", "rope_v6b_no_rotation", "control_rope_v7"}
    assert len(asked) == len({task[1:] for task in asked})


def test_profiler_takes_missing_or_stale_versions_alone(ncu: Ncu, tmp_path: Path) -> None:
    assert command("attention_online") == 0
    first = times(tmp_path)
    assert {hdim for _, hdim, _ in first} == set(HDIMS)
    by_metric = recorded(tmp_path).groupby("metric")["value"].unique().map(list)
    assert set(by_metric.index) == set(METRICS)
    assert all(values == [4000.0 if name.endswith(", cold") else 1000.0] for name, values in by_metric.items())
    known = recorded(tmp_path).to_dict("records")
    stale = [{**row, "source_hash": "0" * 16} if row["hdim"] == 512 else row for row in known]
    replace_rows(tmp_path / "test-gpu", "counters", stale)
    ncu.value, ncu.calls = "3", []
    assert command("attention_online,attention_online_fixed") == 0
    assert ncu.calls == [["attention_online", *["attention_online_fixed"] * len(HDIMS)]] * len(GROUPS)
    values = {(hdim, value) for version, hdim, value in times(tmp_path) if version == "attention_online"}
    assert values == {(512, 3.0), *((hdim, 1000.0) for hdim in HDIMS[1:])}
    assert command("attention_online", "--new-run") == 0
    assert {value for version, _, value in times(tmp_path) if version == "attention_online"} == {3.0}


@pytest.mark.parametrize("fault", ["dies", "hides", "tires"])
def test_fault_of_one_version_leaves_the_others(fault: str, ncu: Ncu, tmp_path: Path, capsys) -> None:
    setattr(ncu, fault, "attention_atomics")
    assert command("attention_atomics,attention_baseline,attention_online") == 1
    found = {(version, hdim) for version, hdim, _ in times(tmp_path)}
    assert found == {(v, hdim) for v in ("attention_baseline", "attention_online") for hdim in HDIMS}
    said = capsys.readouterr().err
    reason = "ncu saw 0 kernels" if fault == "hides" else "Segmentation fault"
    assert f"attention_atomics on {SMALL}: " in said and reason in said and "attention_baseline" not in said


def test_recorded_counters_outlive_an_interruption(ncu: Ncu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "CHUNK", 2)
    ncu.interrupts_at = len(GROUPS)  # in the second of three parts
    assert command("attention_online") == 130
    kept = times(tmp_path)
    assert len(kept) == 2
    ncu.calls, ncu.value, ncu.interrupts_at = [], "2", -1
    assert command("attention_online") == 0
    assert kept < times(tmp_path) and len(times(tmp_path)) == 5
    assert sum(map(len, ncu.calls)) == 3 * len(GROUPS)


def test_profiler_may_not_or_lacks_a_metric(ncu: Ncu, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ncu.forbidden = True
    assert command("attention_online") == REFUSED and len(ncu.calls) == 1
    assert "the driver keeps them for administrators (ERR_NVGPUCTRPERM)" in capsys.readouterr().err
    ncu.forbidden, ncu.broken = False, True
    assert command("") == 1 and len(ncu.calls) < 40
    said = capsys.readouterr().err
    assert "counters: nothing can be profiled; attention_" in said and "no such driver" in said
    lacking = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    ncu.broken, ncu.lacks = False, {lacking}
    assert command("attention_online") == 0
    assert set(recorded(tmp_path)["metric"]) == set(METRICS) - {lacking}


def test_values_are_read_by_launch_and_metric() -> None:
    task = Task("log", "rope_separate", Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128))
    text = page([TIME, "dram__bytes_read.sum"], ["rotate_tokens", "attention"], "1,234.5").replace("1,234.5", "n/a", 1)
    launched = [(task, 0, "rotate_tokens"), (task, 2, "attention")]
    rows = tidy(text, launched, (TIME, "dram__bytes_read.sum"), ", cold")
    assert [(row["launch"], row["metric"], row["value"], row["unit"]) for row in rows] == [
        (0, "dram__bytes_read.sum, cold", 1234.5, ""),
        (2, f"{TIME}, cold", 1234.5, "ns"),
        (2, "dram__bytes_read.sum, cold", 1234.5, ""),
    ]
    assert rows[0]["source_hash"] == today("rope_separate") and rows[0]["rotary_dim"] == 128
    with pytest.raises(ProfileError, match="ncu saw 2 kernels where 2 were launched, or in another order"):
        tidy(text, launched[::-1], (TIME,), "")
    with pytest.raises(ProfileError, match="ncu printed no table: ==ERROR== nothing"):
        tidy("==ERROR== nothing", launched, (TIME,), "")


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "n/a", ""])
def test_counter_without_a_value_is_no_row(ncu: Ncu, tmp_path: Path, value: str) -> None:
    ncu.value = value
    assert command("attention_online") == 0
    assert set(recorded(tmp_path)["metric"]) == {f"{metric}, cold" for metric in counters.COLD}


def test_decimal_comma_is_refused_and_ncu_runs_in_the_c_locale(
    ncu: Ncu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    ncu.value = "1.234,56"
    assert command("attention_online") == 1
    assert "gpu__time_duration.sum is '1.234,56', which is no number with decimal point" in capsys.readouterr().err
    assert ncu.locales == {"C"}


def test_profiled_program_records_what_it_launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["attention_online", "rope_v8_mma", "attention_baseline"]
    problems = [SMALL, Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128), SMALL]
    tasks = [(name, problem_columns(problem)) for name, problem in zip(names, problems)]
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    monkeypatch.setattr(counters, "Program", lambda plan, inputs: SimpleNamespace(launch=lambda: None))
    monkeypatch.setattr(counters, "device_target", lambda: "sm_80")
    monkeypatch.setattr(counters, "make_inputs", lambda *_: {})
    cuda = counters.torch.cuda
    for module, name in ((cuda, "synchronize"), (cuda.profiler, "start"), (cuda.profiler, "stop")):
        monkeypatch.setattr(module, name, lambda: None)
    counters.launch_all(tmp_path)
    assert json.loads((tmp_path / "launched.json").read_text()) == [["attention"], [], ["attention"]]
