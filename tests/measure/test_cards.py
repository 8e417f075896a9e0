"""A folder is one card, held by one command at a time, however many nodes, cards and kills there are."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from analysis.records import cards, files, lock
from analysis.records.cards import folder_of, opened
from analysis.records.files import REFERENCE, DataError, append_rows, read_json, read_records, write_table
from analysis.records.lock import Locked, locked
from tests.measure.stub_card import CARD, RUN_ROW, SHAPE, check_row

FORK = multiprocessing.get_context("fork")
OTHER = {**CARD, "uuid": "GPU-ffff0000-0000-0000-0000-000000000000"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    return tmp_path


# ---------------------------------------------------------------- which folder


def test_a_card_keeps_its_folder_and_another_of_its_model_gets_one_of_its_own(data: Path) -> None:
    assert folder_of(CARD) == data / "made-up-card" == folder_of(CARD)
    assert folder_of(OTHER) == data / "made-up-card-ffff0000" == folder_of(OTHER)
    gpu = read_json(data / "made-up-card-ffff0000" / "gpu.json")
    assert (gpu["slug"], gpu["uuid"], gpu["ceilings"]) == ("made-up-card-ffff0000", OTHER["uuid"], {})


def test_a_card_under_another_power_limit_is_another(data: Path) -> None:
    slower, slowest = {**CARD, "power_limit_w": 250}, {**CARD, "power_limit_w": 100}
    own = "made-up-card-aaaa1111"
    assert [folder_of(gpu).name for gpu in (CARD, slower, slowest)] == ["made-up-card", own, f"{own}-100w"]
    assert [folder_of(gpu).name for gpu in (slowest, CARD, slower)] == [f"{own}-100w", "made-up-card", own]
    assert folder_of({**CARD, "power_limit_w": 0}).name == "made-up-card"  # NVML does not say


def test_the_reference_record_is_of_no_card_at_hand_unless_it_is_named(data: Path) -> None:
    recorded = files.DATA / "measured" / REFERENCE / "gpu.json"
    (data / REFERENCE).mkdir()
    (data / REFERENCE / "gpu.json").write_bytes(recorded.read_bytes())
    of_record = {name: read_json(recorded)[name] for name in ("name", "power_limit_w")}
    card = {**CARD, "slug": REFERENCE, **of_record}
    assert folder_of(card).name == f"{REFERENCE}-aaaa1111"
    assert folder_of(card, REFERENCE).name == REFERENCE
    assert (data / REFERENCE / "gpu.json").read_bytes() == recorded.read_bytes()


def test_a_folder_that_is_named_takes_no_other_model_and_no_other_power_limit(data: Path) -> None:
    assert folder_of(CARD, "lab").name == "lab" == folder_of(OTHER, "lab").name
    for gpu in ({**CARD, "name": "Another"}, {**CARD, "power_limit_w": 250}):
        with pytest.raises(DataError, match=r"lab is of Made-up card at 300 W, GPU-aaaa1111-.*, this card is"):
            folder_of(gpu, "lab")
    with pytest.raises(DataError, match=r"--gpu is '\.\./lab'; it names a folder under"):
        folder_of(CARD, "../lab")


def test_of_cards_that_claim_a_folder_at_once_one_gets_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, begun = cards.write_json, []

    def meanwhile(path: Path, content: dict[str, Any]) -> None:
        write(path, content)
        if not begun:
            begun.append(path)
            assert folder_of(OTHER).name == "made-up-card"

    monkeypatch.setattr(cards, "write_json", meanwhile)
    assert folder_of(CARD).name == "made-up-card-aaaa1111"
    found = {path.parent.name: read_json(path)["uuid"] for path in data.glob("*/*") if path.name.startswith("gpu.")}
    assert found == {"made-up-card": OTHER["uuid"], "made-up-card-aaaa1111": CARD["uuid"]}


# ---------------------------------------------------------------- one command at a time


def _hold(folder: Path, held: Any) -> None:
    with locked(folder):
        held.set()
        time.sleep(60)


def holder(folder: Path) -> Any:
    held = FORK.Event()
    process = FORK.Process(target=_hold, args=(folder, held), daemon=True)
    process.start()
    assert held.wait(10)
    return process


def test_a_second_command_says_who_holds_the_folder_and_death_frees_it(data: Path) -> None:
    process = holder(data)
    with (
        pytest.raises(Locked, match=rf"process {process.pid} on .* since 2.*Z: python -m analysis") as caught,
        locked(data),
    ):
        pass
    assert caught.value.holder["node"] and caught.value.folder == data
    process.kill()
    process.join()
    with locked(data):
        assert json.loads((data / lock.LOCK).read_text())["pid"] == str(os.getpid())
    assert (data / lock.LOCK).read_text() == ""


def test_a_command_that_waits_goes_on_when_the_other_ends(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    process, slept = holder(data), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        process.kill()
        process.join()

    monkeypatch.setattr(time, "sleep", sleep)
    with locked(data, wait=True):
        assert slept == [lock.PAUSE_S]
    assert f"waiting: {data} is being written to by process {process.pid} on" in capsys.readouterr().err


def test_a_file_system_without_locks_is_said_and_used(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(lock.WITHOUT_LOCKS[0], "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with opened(CARD) as folder:
        append_rows(folder / "checks.csv", "checks", [check_row("r1", 0)])
    assert "this file system has no locks" in capsys.readouterr().err
    assert len(read_records(folder / "checks.csv", "checks")) == 1


def _append(gate: Any, path: Path, run: str) -> None:
    gate.wait()
    for number in range(40):
        append_rows(path, "checks", [check_row(run, number)])


def test_processes_that_append_at_once_tear_and_double_nothing(data: Path) -> None:
    path, gate = data / "checks.csv", FORK.Barrier(3)
    running = [FORK.Process(target=_append, args=(gate, path, f"writer{n}")) for n in range(3)]
    for process in running:
        process.start()
    for process in running:
        process.join()
        assert process.exitcode == 0
    rows = read_records(path, "checks")
    for n in range(3):
        assert [row["max_abs_err"] for row in rows if row["run"] == f"writer{n}"] == [float(i) for i in range(40)]
    assert len(rows) == 120


def _append_once(held: Any, path: Path) -> None:
    assert held.wait(10)
    append_rows(path, "checks", [check_row("late", 0)])


def test_a_row_waits_for_another_process_and_lands_in_the_file_that_is_there_then(data: Path) -> None:
    path, held = data / "checks.csv", FORK.Event()
    append_rows(path, "checks", [check_row("r1", 0)])
    process = FORK.Process(target=_append_once, args=(held, path), daemon=True)
    process.start()
    with files._held(path):
        held.set()
        time.sleep(0.2)
        write_table(path, "checks", [check_row("r1", 0), check_row("r1", 1)])
    process.join(10)
    assert [row["run"] for row in read_records(path, "checks")] == ["r1", "r1", "late"]


# ---------------------------------------------------------------- what a kill leaves


@pytest.mark.parametrize("torn", ["r2,log,rope_v7,ro", "r", "r2,log"])
def test_a_row_that_a_kill_cut_short_is_taken_off(data: Path, torn: str, capsys: pytest.CaptureFixture[str]) -> None:
    append_rows(data / "runs.csv", "runs", [{**RUN_ROW, "run": "r1"}, {**RUN_ROW, "run": "r2", "complete": False}])
    path = data / "checks.csv"
    append_rows(path, "checks", [check_row("r1", 0), check_row("r2", 1)])
    whole = path.read_bytes()
    path.write_bytes(whole + torn.encode())
    with locked(data):
        assert path.read_bytes() == whole
    assert f"the last row was cut short, its {len(torn)} bytes are taken off" in capsys.readouterr().err


def test_a_cut_row_of_a_complete_run_is_damage_and_stays(data: Path) -> None:
    append_rows(data / "runs.csv", "runs", [{**RUN_ROW, "run": "r1"}])
    path = data / "checks.csv"
    append_rows(path, "checks", [check_row("r1", 0), check_row("r1", 1)])
    path.write_bytes(cut := path.read_bytes()[:-1])
    with locked(data):
        assert path.read_bytes() == cut
    with pytest.raises(DataError, match="the file is truncated"):
        read_records(path, "checks")


def test_a_cut_row_of_a_table_without_runs_is_taken_off(data: Path) -> None:
    path = data / "shapes.csv"
    append_rows(path, "shapes", [SHAPE])
    path.write_bytes((whole := path.read_bytes()) + b"2026-01-01,c")
    with locked(data):
        assert path.read_bytes() == whole
