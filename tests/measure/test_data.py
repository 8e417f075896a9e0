"""Tables load strictly, name what is wrong with them, and lose nothing when the disk refuses."""

import errno
import io
import json
import os
import re
from pathlib import Path

import pytest

from analysis.book.notebook import card
from analysis.records import dictionary, files
from analysis.records.files import (
    DATA,
    DataError,
    append_rows,
    parsed,
    problem_columns,
    read_json,
    read_records,
    read_table,
)
from analysis.records.schema import SCHEMAS
from kernels import Problem

HEADER = "run,study,node,started_at,finished_at,complete,seconds,driver,cuda,python,numba,numba_cuda,torch"
HEADER += ",sm_mhz_max,power_limit_w,throttle,commit,uuid,other_processes,repeated\n"
ROW = "r1,log,node,2026-01-01,,1,1.5,580,13.0,3.12,0.68,0.30,2.13,1980,700,none,abc,GPU-1\n"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(HEADER + ROW)
    return path


def test_cells_are_parsed_by_their_kind(runs: Path) -> None:
    row = read_table(runs, "runs").iloc[0]
    assert row["complete"] and row["seconds"] == 1.5 and row["sm_mhz_max"] == 1980
    assert row["finished_at"] is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (HEADER.replace(",seconds", "") + ROW, "line 1: column 'seconds' is missing"),
        (HEADER.replace(",commit", ",commit,colour") + ROW, "line 1: column 'colour' is unknown"),
        (HEADER + ROW + ROW[:12], "line 3: 4 cells where 20 are due"),
        (HEADER + ROW + ROW.rstrip("\n"), "line 3: the last line has no end"),
        (HEADER + ROW.replace("1.5", "fast"), "line 2, column 'seconds': 'fast' where number is due"),
        (HEADER + ROW.replace(",1980,", ",1980.5,"), "line 2, column 'sm_mhz_max': '1980.5' where integer is due"),
        (HEADER + ROW.replace(",1,1.5", ",yes,1.5"), "line 2, column 'complete': 'yes' where flag is due"),
        (HEADER + ROW.replace(",580,", ",,"), "line 2, column 'driver': '' where text is due"),
        ("", "line 1: column 'run' is missing"),
    ],
)
def test_damage_is_named_by_file_line_and_column(runs: Path, content: str, says: str) -> None:
    runs.write_text(content)
    with pytest.raises(DataError) as error:
        read_table(runs, "runs")
    assert str(runs) in str(error.value) and says in str(error.value)


def test_a_file_is_read_again_once_it_is_written_again(runs: Path) -> None:
    first = parsed(runs, "runs")
    assert parsed(runs, "runs") is first and list(first["run"]) == ["r1"]
    written = runs.stat().st_mtime_ns
    runs.write_text(HEADER + ROW.replace("r1", "r2"))
    os.utime(runs, ns=(written, written + 1))  # clocks of file systems are coarse
    assert list(parsed(runs, "runs")["run"]) == ["r2"]


def test_missing_and_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.csv: no such file"):
        read_table(tmp_path / "absent.csv", "runs")
    (tmp_path / "binary.csv").write_bytes(b"run,\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8 text at byte 4"):
        read_table(tmp_path / "binary.csv", "runs")
    (tmp_path / "gpu.json").write_text('{"name": ')
    with pytest.raises(DataError, match=r"gpu\.json, line 1"):
        read_json(tmp_path / "gpu.json")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", None, "name is null; it must be a name"),
        ("compute_capability", 9.0, None),
        ("compute_capability", "90", 'compute_capability is "90"; it must be like "9.0"'),
        ("sms", "132", 'sms is "132"; it must be a number of SMs'),
        ("ceilings", {"read_gb_s": "fast"}, 'ceilings is {"read_gb_s": "fast"}; it must be numbers above 0 by name'),
    ],
)
def test_a_field_of_a_card_that_is_not_as_said_is_named_with_its_file(tmp_path, field, value, message) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"name": "T", "compute_capability": "9.0", "sms": 2, "ceilings": {}, field: value}))
    if message is None:
        assert read_json(path)[field] == value
        return
    with pytest.raises(DataError, match=re.escape(f"{path}: {message}")):
        read_json(path)
    path.write_text("[]")
    with pytest.raises(DataError, match="name is null"):
        read_json(path)


def test_a_folder_whose_name_is_a_number_is_found_by_it(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """papermill -p gpu 4090"""
    (tmp_path / "4090").mkdir()
    (tmp_path / "4090" / "gpu.json").write_text("{}")
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    assert card(4090, "recorded", "log") == "4090"
    with pytest.raises(DataError, match="no GPU called '5090' has been measured; there is: 4090"):
        card(5090, "recorded", "log")


ENTRY = {
    **dict.fromkeys(("run", "study", "node", "started_at", "driver", "cuda", "python", "numba"), "x"),
    **dict.fromkeys(("numba_cuda", "torch", "throttle", "commit"), "x"),
    "complete": True, "seconds": 2.0, "sm_mhz_max": 1, "power_limit_w": 1,
}  # fmt: skip


class FullDisk(io.FileIO):
    """Takes ten bytes of every write, then has no space."""

    def write(self, content) -> int:
        if len(content) <= 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content[:10])


def test_a_full_disk_keeps_every_row_before(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = runs.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(files, "open", lambda path, mode, buffering: FullDisk(path, mode), raising=False)
        with pytest.raises(DataError, match="No space left on device"):
            append_rows(runs, "runs", [ENTRY])
    assert runs.read_bytes() == before
    append_rows(runs, "runs", [ENTRY])
    assert len(read_table(runs, "runs")) == 2


def test_a_row_with_an_unknown_column_is_refused(runs: Path) -> None:
    before = runs.read_bytes()
    with pytest.raises(DataError, match="runs has no column colour"):
        append_rows(runs, "runs", [{**ENTRY, "colour": "red"}])
    assert runs.read_bytes() == before


@pytest.mark.parametrize(
    ("path", "table"),
    [(path, path.name.partition(".")[0]) for path in sorted([*DATA.rglob("*.csv"), *DATA.rglob("*.csv.gz")])],
    ids=lambda value: str(value.relative_to(DATA)) if isinstance(value, Path) else value,
)
def test_every_committed_table_loads(path: Path, table: str) -> None:
    assert table in SCHEMAS
    assert len(read_table(path, table))


def test_the_data_dictionary_is_todays() -> None:
    assert (DATA / "README.md").read_text(encoding="utf-8") == dictionary.dictionary()


# ---------------------------------------------------------------- columns that were added


CHECK = {
    **dict.fromkeys((column.name for column in SCHEMAS["checks"] if column.kind == "text"), "x"),
    **problem_columns(Problem("rope", rotary_dim=64)),
    "measured_at": "2026-01-01T00:00:00Z",
    "core": "wgmma",
}


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A file of the checks as it was before they said which core ran."""
    path = tmp_path / "checks.csv"
    append_rows(path, "checks", [CHECK, CHECK])
    assert path.read_text().count(",core\n") == 1 and path.read_text().count(",wgmma\n") == 2
    path.write_text(path.read_text().replace(",core\n", "\n").replace(",wgmma\n", "\n"))
    return path


def test_rows_of_before_a_column_was_added_are_read_and_stay_byte_for_byte(before: Path) -> None:
    rows = before.read_bytes().split(b"\n", 1)[1]
    assert [row["core"] for row in read_records(before, "checks")] == [None, None]
    for core in ("mma", None):
        append_rows(before, "checks", [{**CHECK, "core": core}])
    header, content = before.read_bytes().split(b"\n", 1)
    assert content.startswith(rows) and header.endswith(b",measured_at,core")
    assert [*before.parent.iterdir()] == [before]
    assert [row["core"] for row in read_records(before, "checks")] == [None, None, "mma", None]


def test_runs_of_before_the_uuid_stay_byte_for_byte_when_another_is_written(tmp_path: Path) -> None:
    recorded = (DATA / "measured" / files.REFERENCE / "runs.csv").read_bytes().split(b"\n", 1)[1]
    path = tmp_path / "runs.csv"
    path.write_bytes(HEADER.replace(",uuid,other_processes,repeated", "").encode() + recorded)
    rows = read_records(path, "runs")
    files.write_table(path, "runs", [*rows, {**ENTRY, "uuid": "GPU-1"}])
    header, content = path.read_bytes().split(b"\n", 1)
    assert header.endswith(b",commit,uuid,other_processes,repeated") and content.startswith(recorded)
    assert [row["uuid"] for row in read_records(path, "runs")[-2:]] == [rows[-1]["uuid"], "GPU-1"]


def test_rows_of_before_a_second_addition_stay_and_the_header_names_it(tmp_path: Path) -> None:
    """The record has rows that end before the columns of the first addition, and rows that have these."""
    path = tmp_path / "timings.csv"
    recorded = (DATA / "measured" / files.REFERENCE / "timings.csv").read_bytes()
    path.write_bytes(recorded)
    rows = read_records(path, "timings")
    files.append_rows(path, "timings", [{**rows[-1], "repeated": True}])
    header, content = path.read_bytes().split(b"\n", 1)
    assert header.endswith(b",discarded,repeated") and content.startswith(recorded.split(b"\n", 1)[1])
    assert read_records(path, "timings") == [*rows, {**rows[-1], "repeated": True}]


def test_a_row_with_fewer_cells_than_before_is_damaged(before: Path) -> None:
    append_rows(before, "checks", [CHECK])
    lines = before.read_text().splitlines()
    for cells in (len(SCHEMAS["checks"]) - 2, len(SCHEMAS["checks"]) + 1):
        short = ",".join((lines[1] + ",x,y").split(",")[:cells])
        before.write_text("\n".join([*lines, short]) + "\n")
        with pytest.raises(DataError, match=f"line 5: {cells} cells where {len(SCHEMAS['checks'])} are due"):
            read_table(before, "checks")


def test_columns_are_added_at_the_end_and_may_be_empty() -> None:
    for columns in SCHEMAS.values():
        added = [column.added for column in columns]
        assert added == sorted(added) and all(column.optional for column in columns if column.added)
