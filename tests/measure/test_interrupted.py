"""Kills, a second command and a full disk cost no row and double none: the real commands on a made-up card."""

import errno
import gzip
import io
import multiprocessing
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tqdm import tqdm

from analysis import record
from analysis.evidence.current import today
from analysis.measure import on_gpu, run
from analysis.record import files
from analysis.record import runs as record_runs
from analysis.record.files import DataError, problem_of, read_json
from analysis.studies import Study
from kernels import VERSIONS, Problem
from kernels.checking.reference import INPUTS
from tests.measure.stub_card import CARD, IN_PLACE, AtOnce, MadeUp

FORK = multiprocessing.get_context("fork")
PROCESSES, KILLS = 3, 8
TIMERS = ("device_warm", "launched")
NAMES = tuple(v.id for v in VERSIONS.values() if v.family == "attention" and v.of_log)
STUDY = Study("log", "", TIMERS, ((NAMES, (Problem("attention", hdim=64),)),))
FOLDER = CARD["slug"]
Sent = Iterator[tuple[str, Any]]


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    monkeypatch.setattr(run, "workers", IN_PLACE)
    monkeypatch.setattr(on_gpu, "CARD", MadeUp())
    for name in NAMES:
        today(name)  # once, not in every process that is killed
    return tmp_path / FOLDER


def measure() -> None:
    tqdm.set_lock(threading.RLock())  # forked processes share the default one, which a killed one never gives back
    run.measure_studies([STUDY], PROCESSES)


def require_one_whole_run(card: Path) -> None:
    [only] = record.rows(card, "runs").to_dict("records")
    assert only["complete"] and only["uuid"] == CARD["uuid"]
    [folder] = record_runs.folders(card)
    require_whole(folder)


def require_whole(run: Path) -> None:
    pairs = list(STUDY.pairs())
    checks, timings = (record_runs.read(run, table) for table in ("checks", "timings"))
    checked = [(row["version"], problem_of(row), row["inputs"]) for row in checks]
    assert sorted(checked) == sorted((*pair, kind) for pair in pairs for kind in INPUTS)
    timed = [(row["version"], problem_of(row), row["timer"], row["process"]) for row in timings]
    processes = range(1, PROCESSES + 1)
    assert sorted(timed) == sorted((*p, timer, n) for p in pairs for timer in TIMERS for n in processes)


def on_disk(card: Path) -> dict[str, bytes]:
    """The whole lines of the tables of all runs."""
    found = {}
    for path in card.glob("*/*.csv*"):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        found[str(path.with_suffix("") if path.suffix == ".gz" else path)] = content[: content.rfind(b"\n") + 1]
    return found


def size(card: Path) -> int:
    return sum(path.stat().st_size for path in card.glob("*/*.csv"))


def require_nothing_lost(before: dict[str, bytes], card: Path) -> dict[str, bytes]:
    after = on_disk(card)
    assert all(after[name].startswith(content) for name, content in before.items())
    return after


def test_run_that_is_killed_again_and_again_loses_and_doubles_no_row(card: Path) -> None:
    """It is killed when its tables have grown by up to a dozen rows, and in the end comes to its own end."""
    dice, before, exits = random.Random(KILLS), on_disk(card), []
    for _ in range(KILLS):
        process = FORK.Process(target=measure)
        until = size(card) + dice.randrange(2000)
        process.start()
        while process.is_alive() and size(card) < until:
            time.sleep(dice.uniform(0.0, 0.003))
        process.kill()
        process.join()
        exits.append(process.exitcode)
        before = require_nothing_lost(before, card)
    assert exits.count(-signal.SIGKILL) > KILLS / 2, "on a busy machine a few come to their end"
    measure()
    require_nothing_lost(before, card)
    require_one_whole_run(card)
    assert read_json(card / "gpu.json")["ceilings"]["read_gb_s"] == 100.0


def _measure_slowly(begun: Any, go_on: Any) -> None:
    ask = AtOnce.ask

    def slow(self: AtOnce, work: Callable[..., None], *arguments: Any) -> Sent:
        for number, sent in enumerate(ask(self, work, *arguments)):
            if number == 5:
                begun.set()
                go_on.wait(10)
            yield sent

    AtOnce.ask = slow  # type: ignore[method-assign]  # in this process alone
    measure()


def test_two_commands_at_a_time_write_two_runs(card: Path) -> None:
    begun, go_on = FORK.Event(), FORK.Event()
    first = FORK.Process(target=_measure_slowly, args=(begun, go_on), daemon=True)
    first.start()
    assert begun.wait(10)
    run.measure_studies([STUDY], PROCESSES, new_run=True)
    assert list(record.rows(card, "runs")["complete"]) == [False, True]
    go_on.set()
    first.join(10)
    assert list(record.rows(card, "runs")["complete"]) == [True, True]
    for folder in record_runs.folders(card):
        require_whole(folder)


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
def test_full_disk_ends_a_run_and_the_next_goes_on(card: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FullDisk, "rows", 40 - 1 - rows)
    with monkeypatch.context() as patch:
        patch.setattr(files, "open", lambda path, mode, buffering: FullDisk(path, mode), raising=False)
        with pytest.raises(
            DataError, match=r"could not be written \(No space left on device\); the rows before are kept"
        ):
            measure()
    before = on_disk(card)
    assert all(Path(name).read_bytes() == content for name, content in before.items())
    measure()
    require_nothing_lost(before, card)
    require_one_whole_run(card)
