"""Kills, a second command and a full disk cost no row and double none: the real commands on a made-up card."""

from __future__ import annotations

import errno
import io
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.measure import on_gpu, run
from analysis.measure.studies import Study
from analysis.records import files
from analysis.records.current import today
from analysis.records.files import DataError, problem_of, read_json, read_records
from kernels import Problem
from kernels.checking.reference import INPUTS
from tests.measure.stub_card import CARD

FORK = multiprocessing.get_context("fork")
PROCESSES = 3
STUDY = Study("log", "", tuple(Problem("attention", hdim=hdim) for hdim in (64, 128, 256)), ("device_warm", "launched"))
PAIRS = [(version.id, problem) for version, problem in STUDY.pairs()]
FOLDER = CARD["slug"]
Sent = Iterator[tuple[str, Any]]


class Worker:
    """What a measuring process sends, without one and without a GPU."""

    def __init__(self, work: Callable[..., None]) -> None:
        self.do = {on_gpu.identify: self.identify, on_gpu.check_all: self.check, on_gpu.time_all: self.time}[work]

    def identify(self) -> Sent:
        yield "identity", dict(CARD)

    def check(self, tasks: list[on_gpu.Task]) -> Sent:
        for name, pair in tasks:
            for kind in INPUTS:
                yield "checks", on_gpu.row_of(name, pair, inputs=kind, status="ok", reason="", max_abs_err=1e-6)
        yield "gpu", {**CARD, "ceilings": {"read_gb_s": 1.0}}

    def time(self, process: int, tasks: list[Any]) -> Sent:
        numbers = {"n": 1, "p20_us": 1.0, "median_us": 1.0, "p80_us": 1.0, "status": "ok"}
        for (name, pair), timer, _ in tasks:
            yield "timings", on_gpu.row_of(name, pair, process=process, timer=timer, **numbers)
        yield "throttle", "none"

    def close(self) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    monkeypatch.setattr(run, "Worker", Worker)
    monkeypatch.setattr(run, "compile_all", lambda pairs, target: None)
    monkeypatch.setattr(run, "tqdm", Silent)
    monkeypatch.setattr(run.preflight, "passes", lambda studies: True)
    for name, _ in PAIRS:
        today(name)  # once, not in every process that is killed
    return tmp_path / FOLDER


class Silent:
    """A progress bar that shows nothing."""

    def __init__(self, **_: Any) -> None: ...

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self) -> None: ...


def measure() -> None:
    run.measure_studies([STUDY], PROCESSES)


def require_one_whole_run(folder: Path) -> None:
    [only] = read_records(folder / "runs.csv", "runs")
    assert only["complete"] and only["uuid"] == CARD["uuid"]
    checks, timings = (read_records(folder / f"{table}.csv", table) for table in ("checks", "timings"))
    assert {row["run"] for row in (*checks, *timings)} == {only["run"]}
    checked = [(row["version"], problem_of(row), row["inputs"]) for row in checks]
    assert sorted(checked) == sorted((*pair, kind) for pair in PAIRS for kind in INPUTS)
    timed = [(row["version"], problem_of(row), row["timer"], row["process"]) for row in timings]
    processes = range(1, PROCESSES + 1)
    assert sorted(timed) == sorted((*p, timer, n) for p in PAIRS for timer in STUDY.timers for n in processes)


def on_disk(folder: Path) -> dict[str, bytes]:
    """The whole lines of the tables that grow."""
    tables = {name: folder / f"{name}.csv" for name in ("checks", "timings")}
    contents = {name: path.read_bytes() for name, path in tables.items() if path.exists()}
    return {name: content[: content.rfind(b"\n") + 1] for name, content in contents.items()}


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.csv"))


def kill_and_resume(folder: Path, kills: int, seed: int) -> None:
    """Measure so often, and kill it when the tables have grown by up to a dozen rows; then let it come to its end."""
    dice, before = random.Random(seed), on_disk(folder)
    for _ in range(kills):
        process = FORK.Process(target=measure)
        until = size(folder) + dice.randrange(2500)
        process.start()
        while process.is_alive() and size(folder) < until:
            time.sleep(dice.uniform(0.0, 0.003))
        assert process.is_alive(), "it was to be killed, and has ended"
        process.kill()
        process.join()
        after = on_disk(folder)
        assert all(after[name].startswith(content) for name, content in before.items())
        before = after
    measure()
    assert all(on_disk(folder)[name].startswith(content) for name, content in before.items())
    require_one_whole_run(folder)


def test_a_run_that_is_killed_again_and_again_loses_and_doubles_no_row(folder: Path) -> None:
    kill_and_resume(folder, 8, seed=1)
    assert read_json(folder / "gpu.json")["ceilings"] == {"read_gb_s": 1.0}


@pytest.mark.deep
def test_fifty_kills_lose_and_double_no_row(folder: Path) -> None:
    kill_and_resume(folder, 50, seed=2)


def _measure_slowly(begun: Any, go_on: Any) -> None:
    check = Worker.check

    def slow(self: Worker, tasks: list[on_gpu.Task]) -> Sent:
        for number, sent in enumerate(check(self, tasks)):
            if number == 5:
                begun.set()
                go_on.wait(10)
            yield sent

    Worker.check = slow  # type: ignore[method-assign]  # in this process alone
    measure()


def test_of_two_commands_one_writes_and_the_other_is_refused_or_waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, go_on = FORK.Event(), FORK.Event()
    first = FORK.Process(target=_measure_slowly, args=(begun, go_on), daemon=True)
    first.start()
    assert begun.wait(10)
    monkeypatch.setattr(run, "studies", lambda names: [STUDY])
    monkeypatch.setattr(run, "PROCESSES", PROCESSES)
    command = ["--processes", str(PROCESSES)]
    assert run.main(command) == 1
    assert f"measure: {folder} is being written to by process {first.pid} on " in capsys.readouterr().err
    monkeypatch.setattr(time, "sleep", lambda seconds: (go_on.set(), first.join(10)))
    assert run.main([*command, "--wait"]) == 0
    assert "everything is measured" in capsys.readouterr().out
    require_one_whole_run(folder)


class FullDisk(io.FileIO):
    """Takes half of the row that is one too many, then has no space."""

    rows = 0

    def write(self, content: Any) -> int:
        FullDisk.rows += 1
        if FullDisk.rows == 40:
            return super().write(bytes(content)[: len(content) // 2])
        if FullDisk.rows > 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content)


@pytest.mark.parametrize("rows", [1, 30])
def test_a_full_disk_ends_a_run_with_a_message_and_the_next_call_goes_on(
    folder: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FullDisk, "rows", 40 - 1 - rows)
    with monkeypatch.context() as patch:
        patch.setattr(files, "open", lambda path, mode, buffering: FullDisk(path, mode), raising=False)
        with pytest.raises(
            DataError, match=r"could not be written \(No space left on device\); the rows before are kept"
        ):
            measure()
    before = on_disk(folder)
    assert all((folder / f"{name}.csv").read_bytes() == content for name, content in before.items())
    measure()
    assert all(on_disk(folder)[name].startswith(content) for name, content in before.items())
    require_one_whole_run(folder)
