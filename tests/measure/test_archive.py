"""Superseded runs move to the history of their card: every line as it stood, whatever ends the command."""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.records import files
from analysis.records.archive import archive, history_of, main, superseded, whole
from analysis.records.files import DataError, append_rows, read_records, write_json
from analysis.records.lock import Locked, locked
from analysis.records.schema import SCHEMAS
from tests.measure.stub_card import CARD, RUN_ROW, check_row, filled

TABLES = ("checks", "op", "runs")
NAMES = ",".join(column.name for column in SCHEMAS["checks"]).encode() + b"\n"
NAMES_BEFORE = NAMES.replace(b",core", b"")
# A row of before `core` was added, with numbers as this code does not write them and a reason of two lines.
OLD = b'a,log,v,attention,1,1,1,1,1,64,0,float32,0,0,none,computed,sharp,error,"one\n""two"", three",1e-7,.50,0,h,t\n'


class Killed(BaseException):
    """No handler of errors sees a kill."""


def measure(folder: Path, run: str, study: str = "log", complete: bool = True) -> None:
    append_rows(folder / "checks.csv", "checks", [check_row(run, number, study) for number in range(2)])
    append_rows(folder / "op.csv", "op", [filled("op", run=run, study=study)])
    append_rows(folder / "runs.csv", "runs", [{**RUN_ROW, "run": run, "study": study, "complete": complete}])


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Complete runs a, b, c and d of one study, in it ab and cd that are incomplete; and b and c of another."""
    monkeypatch.setattr(files, "MEASURED", tmp_path / "data")
    folder = tmp_path / "data" / CARD["slug"]
    write_json(folder / "gpu.json", CARD)
    (folder / "checks.csv").write_bytes(NAMES_BEFORE + OLD)
    for run in ("a", "ab", "b", "c", "cd", "d"):
        measure(folder, run, complete=len(run) == 1)
        if run in ("b", "c"):
            measure(folder, run, "fp16")
    return folder


def text_of(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def lines(folder: Path, table: str) -> list[bytes]:
    """The lines of record and history but their headers, sorted."""
    paths = (path for path in (folder / f"{table}.csv", history_of(folder, table)) if path.exists())
    return sorted(line for path in paths for line in list(io.BytesIO(text_of(path)))[1:])


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def runs_in(path: Path, table: str) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["run"], row["study"]) for row in read_records(path, table)))


def of(study: str, *runs: str) -> list[dict[str, Any]]:
    """Rows of runs.csv; the name of an incomplete run ends in -."""
    return [{"run": run.rstrip("-"), "study": study, "complete": not run.endswith("-")} for run in runs]


@pytest.mark.parametrize(
    ("runs", "going"),
    [
        (of("log", "1", "2"), []),
        (of("log", "1", "2", "3-"), []),  # one newer that is complete
        (of("log", "1", "2", "3"), [("1", "log")]),
        (of("log", "3", "1", "2", "2a-"), [("1", "log")]),  # 2a can be gone on with
        (of("log", "0-", "1", "2"), [("0", "log")]),
        ([*of("log", "1", "2"), *of("fp16", "3", "4", "5")], [("3", "fp16")]),
        (of("sanitizers", "1", "2", "3"), []),  # rows of their one state name older runs
    ],
)
def test_a_run_goes_once_two_newer_complete_ones_of_its_study_exist(
    runs: list[dict[str, Any]], going: list[tuple[str, str]]
) -> None:
    assert superseded(runs) == going


def test_lines_of_record_and_history_are_those_of_before(card: Path) -> None:
    before, gpu = {table: lines(card, table) for table in TABLES}, (card / "gpu.json").read_bytes()
    said = "\n".join(archive(card))
    assert "study log: a, ab (incomplete), b\n" in said and "fp16" not in said
    for table in TABLES:
        assert runs_in(history_of(card, table), table) == [("a", "log"), ("ab", "log"), ("b", "log")]
        kept = [("b", "fp16"), ("c", "log"), ("c", "fp16"), ("cd", "log"), ("d", "log")]
        assert runs_in(card / f"{table}.csv", table) == kept
        assert lines(card, table) == before[table]
        assert history_of(card, table).read_bytes()[4:8] == bytes(4)  # no time: the same on any day
    assert text_of(history_of(card, "checks")).startswith(NAMES + OLD)
    assert (card / "gpu.json").read_bytes() == gpu and not history_of(card, "timings").exists()
    after = contents(card)
    assert archive(card) == [f"{CARD['slug']}: no run has 2 newer complete runs of its study"]
    assert contents(card) == after


def test_history_grows_and_takes_in_a_column_that_was_added_since(card: Path) -> None:
    (card / "checks.csv").write_bytes(NAMES_BEFORE + OLD)
    archive(card)
    assert text_of(history_of(card, "checks")) == NAMES_BEFORE + OLD
    for run in ("e", "f", "g"):
        measure(card, run)
    new = [line for line in list(io.BytesIO((card / "checks.csv").read_bytes())) if line.startswith(b"e,")]
    archive(card)
    assert text_of(history_of(card, "checks")) == NAMES + OLD + b"".join(new) and len(new) == 2
    assert [row["core"] for row in read_records(history_of(card, "checks"), "checks")] == [None, "x", "x"]


def test_a_call_that_is_killed_anywhere_is_gone_on_with(card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {table: lines(card, table) for table in TABLES}
    start = card.parent / "start"
    shutil.copytree(card, start)
    frames = {table: whole(start, table) for table in TABLES}
    replace = os.replace
    archive(card)
    done = contents(card)
    for last in range(2 * len(TABLES)):
        for finished in (False, True):  # killed before or behind a step
            shutil.rmtree(card)
            shutil.copytree(start, card)
            steps = iter(range(last + 1))

            def killing(source: Path, target: Path) -> None:
                step = next(steps)  # noqa: B023
                if step < last or finished:  # noqa: B023
                    replace(source, target)
                if step == last:  # noqa: B023
                    raise Killed

            with monkeypatch.context() as patch, pytest.raises(Killed):
                patch.setattr(os, "replace", killing)
                archive(card)
            for table in TABLES:
                assert set(lines(card, table)) == set(before[table])  # some are in both
                by = [column.name for column in SCHEMAS[table]]
                found = whole(card, table)
                assert found.sort_values(by).values.tolist() == frames[table].sort_values(by).values.tolist()
            archive(card)
            assert contents(card) == done


def test_a_full_disk_loses_nothing(card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(card)

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"checks\.csv\.gz: could not be written \(No space left on device\)"):
        archive(card)
    assert contents(card) == before


def test_a_run_that_is_in_both_with_other_rows_moves_nothing(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive(card)
    measure(card, "b")  # a name that is archived
    append_rows(card / "checks.csv", "checks", [check_row("b", 2)])
    before = contents(card)
    assert main([]) == 1
    assert "run b of study log differs between" in capsys.readouterr().err and contents(card) == before


@pytest.mark.parametrize("table", ["op.csv", "history/op.csv.gz"])
def test_a_damaged_table_moves_nothing(card: Path, table: str) -> None:
    archive(card)
    measure(card, "e")
    path = card / table
    path.write_bytes(path.read_bytes().replace(b",1,", b",one,") if path.suffix == ".csv" else path.read_bytes()[:-9])
    before = contents(card)
    with pytest.raises(DataError, match=r"where integer is due|damaged"):
        archive(card)
    assert contents(card) == before


def test_one_command_at_a_time_and_a_check_that_writes_nothing(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(card)
    assert main(["--check"]) == 0
    assert "study log: a, ab (incomplete), b\n" in capsys.readouterr().out and contents(card) == before
    with locked(card):
        assert main(["--gpu", card.name]) == 1
        with pytest.raises(Locked):
            archive(card)
    assert f"archive: {card} is being written to by process {os.getpid()}" in capsys.readouterr().err
    assert contents(card) == before
    assert main(["--gpu", "absent"]) == 1
    assert f"no GPU called 'absent' has been measured; there is: {card.name}" in capsys.readouterr().err
    assert main([]) == 0 and contents(card) != before
