"""Records load strictly, with errors that name the fault; a card has one folder, and a run one of its own."""

import contextlib
import gzip
import itertools
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.measure.run import Writer
from analysis.record import files, rows, runs
from analysis.record.cards import describe, folder_of
from analysis.record.columns import SCHEMAS, stored
from analysis.record.files import DATA, REFERENCE, DataError, known_gpus, read_json, read_table, write_table
from analysis.record.problems import name_of, problem_columns, problem_of, values_of
from analysis.record.runs import Run
from kernels import Problem
from tests.measure.stub_card import CARD, PROBLEM, check_row, filled

START = "2026-12-31T23:59:59Z"
OTHER = {**CARD, "uuid": "GPU-ffff0000-0000-0000-0000-000000000000"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    return tmp_path


# ---------------------------------------------------------------- problems and tables


@pytest.mark.parametrize(
    ("problem", "name"),
    [
        (Problem("rope", 1, 4, seq_q=64, hdim=2048, rotary_dim=128), "rope-b1-h4-s64-d2048-r128"),
        (Problem("rope", 2, 8, 4, 1, 9, 64, 32), "rope-b2-h8-kv4-s1-k9-d64-r32"),
        (Problem("fp16", 1, 8, seq_q=512, hdim=64, dtype="float16", causal=True), "fp16-b1-h8-s512-d64-float16-causal"),
        (Problem("attention", seq_q=2, seq_k=8, hdim=64, q_offset=-3), "attention-b1-h1-s2-k8-d64-o-3"),
        (Problem("sinusoidal", seq_q=2, hdim=64, table="float8"), "sinusoidal-b1-h1-s2-d64-table_float8"),
    ],
)
def test_problem_is_one_cell_by_its_name(problem: Problem, name: str) -> None:
    columns = problem_columns(problem)
    assert name_of(*columns.values()) == name and values_of(name) == tuple(columns.values())
    assert problem_of(dict(zip(columns, values_of(name)))) == problem


ROW = filled("launches", **problem_columns(Problem("rope", hdim=64, rotary_dim=32)), version="v7", ptx="p")
HEADER, LINE = "version,problem,ptx,source_hash\n", "v7,rope-b1-h1-s64-d64-r32,p,x\n"


def test_written_table_is_read_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "launches.csv"
    write_table(path, "launches", [ROW, {**ROW, "ptx": 'a, "b"\nc'}])
    assert path.read_text().startswith(HEADER + LINE)
    assert read_table(path, "launches").to_dict("records") == [ROW, {**ROW, "ptx": 'a, "b" c'}]
    with pytest.raises(DataError, match="launches has no column colour"):
        write_table(path, "launches", [{**ROW, "colour": "red"}])


ODD = [math.nan, math.inf, -math.inf, np.float32(0.1), np.bool_(True), True, None, "", " ", "\n", "a\0b", "\udce4"]


@pytest.mark.parametrize("table", sorted(set(SCHEMAS) - {"runs", "problem", "columns"}))
def test_odd_value_is_written_readably_or_refused(tmp_path: Path, table: str) -> None:
    own = [column for column in stored(table) if column.kind != "problem"]
    plain = filled(table, **(PROBLEM if len(own) < len(stored(table)) else {}))
    taken = []
    for column, value in itertools.product(own, ODD):
        row = {**plain, column.name: value}
        with contextlib.suppress(DataError):
            files.text_of([row], table)
            taken.append(row)
    files.write_table(tmp_path / "table.csv", table, taken)
    assert len(taken) > len(ODD)
    assert len(files.read_rows(tmp_path / "table.csv", table)) == len(taken)


def test_row_that_cannot_be_read_back_is_refused(tmp_path: Path) -> None:
    run = Run.begin(tmp_path, CARD, START)
    with pytest.raises(DataError, match="counters, a row that is not written, column 'value': '' where number is due"):
        run.append("counters", [filled("counters", **PROBLEM, value=math.nan)])
    run.append("counters", [filled("counters", **PROBLEM, value=math.inf)])
    run.settle("counters", complete=True)
    assert [*rows(tmp_path, "counters")["value"]] == [math.inf]


def test_ceiling_that_is_no_number_is_not_recorded(tmp_path: Path) -> None:
    describe(tmp_path / "gpu.json", CARD, {"read_gb_s": math.inf, "fp32_tflops": math.nan, "tensor_tflops": 1.0})
    assert read_json(tmp_path / "gpu.json")["ceilings"] == {"tensor_tflops": 1.0}
    with pytest.raises(DataError, match=r"gpu\.json: .*what was there is kept"):
        files.write_json(tmp_path / "gpu.json", {"sms": math.nan})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("version,problem,ptx\n", "column 'source_hash' is missing"),
        (HEADER.replace("ptx", "ptx,colour"), "column 'colour' is unknown"),
        (HEADER + LINE + LINE.rstrip("\n"), "the last line has no end"),
        (HEADER + LINE.replace("h1", "hh"), "column 'problem': 'rope-b1-hh-s64-d64-r32' where problem is due"),
        (HEADER + LINE.replace(",p,", ",,"), "column 'ptx': '' where text is due"),
        ("", "damaged"),
        ("run,\xff\xfe", "damaged"),
    ],
)
def test_damage_is_named_by_file_and_column(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "launches.csv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=f"{re.escape(str(path))}.*{re.escape(says)}"):
        read_table(path, "launches")


@pytest.mark.parametrize("content", ['{"name": "T", "compute_capability": "9.0", "sms": 2}', "{", "[]", "3", "\xff"])
def test_damaged_gpu_json_names_its_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "gpu.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=re.escape(str(path))):
        read_json(path)


def test_every_committed_table_loads() -> None:
    for gpu in known_gpus():
        for folder in runs.folders(files.gpu_folder(gpu)):
            names = {path.name.partition(".")[0] for path in folder.glob("*.csv*")}
            assert all(runs.read(folder, name) for name in names)
    for path in (*DATA.glob("*.csv"), *DATA.glob("measured/*/*.csv")):
        assert len(read_table(path, path.stem))


# ---------------------------------------------------------------- runs


def test_runs_that_begin_in_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    begun = [Run.begin(tmp_path, CARD, START) for _ in range(3)]
    seconds = ["20261231T235959Z", "20270101T000000Z", "20270101T000001Z"]
    assert [run.id for run in begun] == [f"{second}-aaaa1111" for second in seconds]
    assert Run.begin(tmp_path, OTHER, START).id == "20261231T235959Z-ffff0000"  # another card of the host
    assert Run.begin(tmp_path, {**CARD, "uuid": None}, START).id == "20261231T235959Z"


def test_complete_run_is_zipped_with_equal_bytes(tmp_path: Path) -> None:
    for card in ("a", "b"):
        run = Run.begin(tmp_path / card, CARD, START)
        run.append("checks", [check_row(run.id, 0), check_row(run.id, 1)])
        run.settle("log", complete=False)
        before = rows(tmp_path / card, "checks")
        run.settle("log", complete=True)
        assert rows(tmp_path / card, "checks").equals(before) and list(before["max_abs_err"]) == [0.0, 1.0]
        [about] = rows(tmp_path / card, "runs").to_dict("records")
        assert about["complete"] and about["study"] == "log" and about["uuid"] == CARD["uuid"]
        assert sorted(path.name for path in run.folder.iterdir()) == ["checks.csv.gz", "run.json"]
    one, other = (path.read_bytes() for path in sorted(tmp_path.glob("*/*/checks.csv.gz")))
    assert one == other


def test_latest_rows_of_a_state_of_the_card_count(tmp_path: Path) -> None:
    for start, versions in (("2026-01-01T00:00:00Z", ["rope_v8", "rope_v7"]), ("2026-01-02T00:00:00Z", ["rope_v8"])):
        run = Run.begin(tmp_path, CARD, start)
        columns = problem_columns(Problem("rope", hdim=64))
        run.append("counters", [filled("counters", **columns, version=name, kernel=start) for name in versions])
        run.close()
    found = rows(tmp_path, "counters")
    assert list(zip(found["version"], found["run"])) == [
        ("rope_v7", "20260101T000000Z-aaaa1111"), ("rope_v8", "20260102T000000Z-aaaa1111"),
    ]  # fmt: skip


def test_damage_is_an_error_in_a_complete_run_alone(tmp_path: Path) -> None:
    run = Run.begin(tmp_path, CARD, START)
    run.append("checks", [check_row(run.id, 0), check_row(run.id, 1)])
    run.settle("log", complete=False)
    path = run.folder / "checks.csv"
    path.write_bytes(path.read_bytes()[:-5])
    assert len(rows(tmp_path, "checks")) == 1
    run.settle("log", complete=True)
    with pytest.raises(DataError, match=r"checks\.csv\.gz: damaged"):
        rows(tmp_path, "checks")
    path.with_name("checks.csv.gz").write_bytes(gzip.compress(b"x")[:-4])
    with pytest.raises(DataError, match=r"checks\.csv\.gz: damaged"):
        rows(tmp_path, "checks")


@pytest.mark.parametrize("field", ["studies", "complete", "node"])
def test_run_that_lacks_a_field_is_named(tmp_path: Path, field: str) -> None:
    run = Run.begin(tmp_path, CARD, START)
    run.settle("log", complete=False)
    path = run.folder / "run.json"
    path.write_text(json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != field}))
    with pytest.raises(DataError, match=f"{re.escape(str(path))}: .*{field}"):
        rows(tmp_path, "runs")


# ---------------------------------------------------------------- which runs belong together


def ended(card: Path, gpu: dict[str, Any] = CARD, start: str = START, **fields: Any) -> Path:
    """A complete run of a card with two checks; `fields` of its run.json are changed, or gone where they are None."""
    run = Run.begin(card, gpu, start)
    run.append("checks", [check_row(run.id, 0), check_row(run.id, 1)])
    run.settle("log", complete=True)
    said = {**runs.about(run.folder), **fields}
    files.write_json(run.folder / "run.json", {name: value for name, value in said.items() if value is not None})
    return run.folder


OTHERS = [{"name": "Another card"}, {"power_limit_w": 250}, {"sms": 1}]


@pytest.mark.parametrize("change", OTHERS)
def test_run_of_another_model_power_limit_or_slice_is_not_read(data: Path, change: dict[str, Any]) -> None:
    card = folder_of(CARD, "lab")
    ended(card, {**OTHER, **change})
    [value] = change.values()
    with pytest.raises(DataError, match=rf"{value}.*ffff0000.*gpu\.json .*Made-up card at 300 W, .*2 SMs: move it"):
        rows(card, "checks")


@pytest.mark.parametrize("change", OTHERS)
def test_runs_of_another_card_are_refused_where_its_gpu_json_took_the_place(data: Path, change: dict[str, Any]) -> None:
    """`cp -R` of a folder of that name replaces gpu.json."""
    card = folder_of(CARD, "lab")
    ended(card)
    describe(card / "gpu.json", {**OTHER, **change}, {})
    with pytest.raises(DataError, match=r"Made-up card at 300 W, GPU-aaaa1111.*or restore .*lab/gpu\.json"):
        rows(card, "checks")


def test_power_limit_is_compared_with_runs_where_gpu_json_lacks_it(data: Path) -> None:
    card = folder_of({**CARD, "power_limit_w": None}, "lab")
    ended(card, {**CARD, "power_limit_w": None})
    ended(card)
    assert len(rows(card, "checks")) == 4
    with pytest.raises(DataError, match=r"has runs of .* at 300 W, .*this card is .* at 250 W"):
        Writer(card, {**CARD, "power_limit_w": 250})
    ended(card, {**CARD, "power_limit_w": 250})
    with pytest.raises(DataError, match="250 W"):
        rows(card, "checks")


def test_runs_of_two_cards_of_one_model_are_pooled(data: Path) -> None:
    card = folder_of(CARD, "lab")
    for gpu, start in ((CARD, "2026-01-01T00:00:00Z"), (OTHER, "2026-01-03T00:00:00Z")):
        ended(card, gpu, start)
    assert len(rows(card, "checks")) == 4
    assert runs.summary(card) == "2 runs on 2 cards (by UUID), 2026-01-01 to 2026-01-03"


@pytest.mark.parametrize("fields", [{}, {"run": None, "name": None, "sms": None}])
def test_copy_of_a_run_counts_once(data: Path, fields: dict[str, Any]) -> None:
    card = folder_of(CARD, "lab")
    folder = ended(card, **fields)
    shutil.copytree(folder, card / "20200101T000000Z")
    assert len(rows(card, "checks")) == 2 and len(rows(card, "runs")) == 1
    assert "1 copies of runs are not counted" in runs.summary(card)


def test_run_that_went_on_counts_before_its_earlier_copy(data: Path) -> None:
    card = folder_of(CARD, "lab")
    run = Run.begin(card, CARD, START)
    run.append("checks", [check_row(run.id, 0)])
    run.settle("log", complete=False)
    shutil.copytree(run.folder, card / "20200101T000000Z")
    run.append("checks", [check_row(run.id, 1)])
    run.settle("log", complete=True)
    assert [*rows(card, "checks")["max_abs_err"]] == [0.0, 1.0] and list(runs.unfinished(card)) == []


def test_fields_that_old_runs_lack_match_any_card(data: Path) -> None:
    card = folder_of(CARD, "lab")
    lacking = dict.fromkeys(("name", "sms", "compute_capability", "uuid", "power_limit_w", "sm_mhz_max"))
    ended(card, **lacking)
    assert len(rows(card, "checks")) == 2
    assert "some on cards without one" in runs.summary(card)
    assert Writer(card, CARD).run("log").folder.parent == card


def test_folder_copied_into_the_folder_of_a_card_is_named(data: Path) -> None:
    card = folder_of(CARD, "lab")
    shutil.move(ended(card), card / "lab" / "20200101T000000Z")
    with pytest.raises(DataError, match="20200101T000000Z is a run inside of lab: move it to"):
        rows(card, "checks")


# ---------------------------------------------------------------- which folder is a card's


def test_card_keeps_its_folder_and_another_gets_its_own(data: Path) -> None:
    slower = {**CARD, "power_limit_w": 250}
    cards = {"made-up-card": CARD, "made-up-card-aaaa1111": slower, "made-up-card-ffff0000": OTHER}
    for _ in range(2):
        assert [folder_of(gpu).name for gpu in cards.values()] == list(cards)
    assert folder_of({**CARD, "power_limit_w": 0}).name == "made-up-card"  # NVML does not say
    with pytest.raises(DataError, match="name its folder, --gpu SLUG"):
        folder_of({**CARD, "power_limit_w": 100})
    gpu = read_json(data / "made-up-card-ffff0000" / "gpu.json")
    assert (gpu["slug"], gpu["uuid"], gpu["ceilings"]) == ("made-up-card-ffff0000", OTHER["uuid"], {})


def test_reference_record_is_of_no_card_at_hand_unless_it_is_named(data: Path) -> None:
    recorded = files.DATA / "measured" / REFERENCE / "gpu.json"
    (data / REFERENCE).mkdir()
    (data / REFERENCE / "gpu.json").write_bytes(recorded.read_bytes())
    of_record = {name: read_json(recorded)[name] for name in ("name", "power_limit_w", "sms")}
    card = {**CARD, "slug": REFERENCE, **of_record}
    assert folder_of(card).name == f"{REFERENCE}-aaaa1111"
    assert folder_of(card, REFERENCE).name == REFERENCE
    assert (data / REFERENCE / "gpu.json").read_bytes() == recorded.read_bytes()


def test_folder_that_is_named_takes_no_other_model_and_no_other_power_limit(data: Path) -> None:
    assert folder_of(CARD, "lab").name == "lab" == folder_of(OTHER, "lab").name
    for gpu in ({**CARD, "name": "Another"}, {**CARD, "power_limit_w": 250}):
        with pytest.raises(DataError, match=r"lab is of Made-up card at 300 W, GPU-aaaa1111-.*, this card is"):
            folder_of(gpu, "lab")
    with pytest.raises(DataError, match=r"--gpu is '\.\./lab'; it names a folder under"):
        folder_of(CARD, "../lab")


def test_folder_is_found_by_a_name_that_is_a_number(data: Path) -> None:
    """papermill -p gpu 4090"""
    (data / "4090").mkdir()
    (data / "4090" / "gpu.json").write_text("{}")
    assert files.gpu_folder(4090).name == "4090"
    with pytest.raises(DataError, match=r"no GPU called 5090 .*; there is: 4090; papermill .* -r gpu NAME"):
        files.gpu_folder(5090)
