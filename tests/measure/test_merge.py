"""Cards that were measured on several nodes come together in one folder, whole or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.records import files
from analysis.records.archive import archive, history_of
from analysis.records.cards import described
from analysis.records.files import REFERENCE, DataError, append_rows, read_json, read_records, write_table
from analysis.records.lock import Locked, locked
from analysis.records.merge import main, merge
from tests.measure.stub_card import CARD, PROBLEM, RUN_ROW, SHAPE, check_row, filled

OTHER = {**CARD, "uuid": "GPU-bbbb2222-0000-0000-0000-000000000000"}


def node(folder: Path, runs: list[str], gpu: dict[str, Any] = CARD, name: str = CARD["slug"]) -> Path:
    """A data folder of a node with one card and some runs of two checks each; one called `cut` is incomplete."""
    card = folder / name
    files.write_json(card / "gpu.json", described(card, gpu, {"read_gb_s": 1.0}))
    for run in runs:
        append_rows(card / "checks.csv", "checks", [check_row(run, 0), check_row(run, 1)])
        row = {**RUN_ROW, "run": run, "uuid": gpu["uuid"], "complete": run != "cut"}
        append_rows(card / "runs.csv", "runs", [row])
    return folder


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "MEASURED", tmp_path / "data")
    return tmp_path / "data"


def runs_of(card: Path) -> list[str]:
    found = [row["run"] for row in read_records(card / "runs.csv", "runs")]
    assert [row["run"] for row in read_records(card / "checks.csv", "checks")] == [run for run in found for _ in "12"]
    return found


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_runs_of_several_nodes_are_appended_once(data: Path, tmp_path: Path) -> None:
    sources = [node(tmp_path / "a", ["r1", "r2"]), node(tmp_path / "b", ["r2", "r3"]), node(data, ["r1"])][:2]
    before = contents(data)
    lines = merge(sources)
    assert "1 runs appended, 1 there already" in lines[0] and "1 runs appended, 1 there already" in lines[1]
    assert runs_of(data / CARD["slug"]) == ["r1", "r2", "r3"]
    merged = contents(data)
    assert all(merged[name].startswith(content) for name, content in before.items())
    merge(sources)
    assert contents(data) == merged


def test_a_run_that_differs_from_that_of_its_name_stops_everything(data: Path, tmp_path: Path) -> None:
    node(data, ["r1"])
    good, bad = node(tmp_path / "a", ["r2"]), node(tmp_path / "b", ["r1"])
    path = bad / CARD["slug"] / "checks.csv"
    rows = read_records(path, "checks")
    write_table(path, "checks", [rows[0], {**rows[1], "max_abs_err": 7.0}])
    before = contents(data)
    with pytest.raises(DataError) as caught:
        merge([good, bad])
    said = f"run r1 of study log in {bad / CARD['slug']} differs from the run of that name in {data / CARD['slug']}"
    assert said in str(caught.value) and contents(data) == before


def test_two_sources_that_contradict_each_other_stop_everything(data: Path, tmp_path: Path) -> None:
    sources = [node(tmp_path / "a", ["r1"]), node(tmp_path / "b", ["r1"])]
    append_rows(sources[1] / CARD["slug"] / "checks.csv", "checks", [check_row("r1", 2)])
    with pytest.raises(DataError, match="run r1 of study log in"):
        merge(sources)
    assert contents(data) == {}


def test_another_card_of_that_name_gets_a_folder_of_its_own(data: Path, tmp_path: Path) -> None:
    node(data, ["r1"])
    sources = [node(tmp_path / "a", ["r1"], OTHER), node(tmp_path / "b", ["r2"], OTHER, "made-up-card-bbbb2222")]
    merge(sources)
    assert runs_of(data / "made-up-card") == ["r1"]
    assert runs_of(data / "made-up-card-bbbb2222") == ["r1", "r2"]
    gpu = read_json(data / "made-up-card-bbbb2222" / "gpu.json")
    assert (gpu["slug"], gpu["uuid"], gpu["ceilings"]) == ("made-up-card-bbbb2222", OTHER["uuid"], {"read_gb_s": 1.0})


def test_cards_of_one_model_come_together_in_a_folder_that_is_named(data: Path, tmp_path: Path) -> None:
    sources = [node(tmp_path / "a", ["r1"]), node(tmp_path / "b", ["r2"], OTHER)]
    merge(sources, named="lab")
    merged = contents(data)
    assert runs_of(data / "lab") == ["r1", "r2"] and read_json(data / "lab" / "gpu.json")["uuid"] == CARD["uuid"]
    assert {row["uuid"] for row in read_records(data / "lab" / "runs.csv", "runs")} == {CARD["uuid"], OTHER["uuid"]}
    for gpu in ({**OTHER, "name": "Another model"}, {**OTHER, "power_limit_w": 1}):
        with pytest.raises(DataError, match=r"lab is of .*, .* of "):
            merge([node(tmp_path / str(gpu["power_limit_w"]), ["r3"], gpu)], named="lab")
    with pytest.raises(DataError, match="names a folder under"):
        merge(sources, named="../lab")
    assert contents(data) == merged


def test_a_card_is_found_whatever_its_folder_is_called(data: Path, tmp_path: Path) -> None:
    merge([node(tmp_path / "a", ["r1"], name="lab-1")])
    merge([node(tmp_path / "b", ["r2"])])
    assert runs_of(data / "lab-1") == ["r1", "r2"] and not (data / "made-up-card").exists()


def test_incomplete_runs_stay_where_they_can_be_gone_on_with(data: Path, tmp_path: Path) -> None:
    [line] = merge([node(tmp_path / "a", ["r1", "cut"])])
    assert "incomplete, left out: log cut" in line
    assert runs_of(data / CARD["slug"]) == ["r1"]


def test_a_merge_that_was_cut_short_is_gone_on_with(data: Path, tmp_path: Path) -> None:
    source = node(tmp_path / "a", ["r1"])
    merge([source])
    whole = contents(data)
    card = data / CARD["slug"]
    (card / "runs.csv").unlink()  # written last
    write_table(card / "checks.csv", "checks", read_records(card / "checks.csv", "checks")[:1])
    merge([source])
    assert contents(data) == whole


def test_runs_that_are_archived_here_stay_archived(data: Path, tmp_path: Path) -> None:
    runs = ["cut", "r1", "r2", "r3", "r4"]
    source = node(tmp_path / "a", runs)
    archive(node(data, runs[:4]) / CARD["slug"])
    [line] = merge([source])
    assert "1 runs appended, 3 there already" in line
    assert runs_of(data / CARD["slug"]) == ["r2", "r3", "r4"]


def test_runs_that_are_archived_elsewhere_are_appended(data: Path, tmp_path: Path) -> None:
    source = node(tmp_path / "a", ["r1", "r2", "r3"])
    archive(source / CARD["slug"])
    for target in (node(data, ["r0"]), data):
        merge([source])
        assert sorted(runs_of(target / CARD["slug"])) == ["r0", "r1", "r2", "r3"]
    assert [row["run"] for row in read_records(history_of(source / CARD["slug"], "runs"), "runs")] == ["r1"]


def test_an_archived_run_that_differs_stops_everything(data: Path, tmp_path: Path) -> None:
    archive(node(data, ["r1", "r2", "r3"]) / CARD["slug"])
    source = node(tmp_path / "a", ["r1"])
    append_rows(source / CARD["slug"] / "checks.csv", "checks", [check_row("r1", 2)])
    with pytest.raises(DataError, match="run r1 of study log in"):
        merge([source])


def test_counters_and_shapes_that_are_there_are_kept_and_others_added(data: Path, tmp_path: Path) -> None:
    there, comes = node(data, ["r1"]) / CARD["slug"], node(tmp_path / "a", ["r1"]) / CARD["slug"]
    old = filled("counters", **PROBLEM, version="rope_v7", run="c1")
    append_rows(there / "counters.csv", "counters", [old])
    new = filled("counters", **PROBLEM, version="rope_v8", run="c2")
    append_rows(comes / "counters.csv", "counters", [{**old, "run": "c2", "value": 5.0}, new])
    append_rows(comes / "shapes.csv", "shapes", [SHAPE])
    append_rows(comes / "sanitizers.csv", "sanitizers", [filled("sanitizers", **PROBLEM, run="s1")])
    append_rows(comes / "runs.csv", "runs", [{**RUN_ROW, "run": "s1", "study": "sanitizers", "complete": False}])
    [line] = merge([comes.parent])
    assert "of counters, sanitizers and shapes 1 kept as they are there" in line
    rows = read_records(there / "counters.csv", "counters")
    assert [(row["version"], row["run"], row["value"]) for row in rows] == [("rope_v7", "c1", 1), ("rope_v8", "c2", 1)]
    assert len(read_records(there / "shapes.csv", "shapes")) == 1
    assert ("s1", "sanitizers") in {(row["run"], row["study"]) for row in read_records(there / "runs.csv", "runs")}
    before = contents(data)
    merge([comes.parent])
    assert contents(data) == before


def test_the_reference_record_of_a_clone_is_the_one_that_is_there(data: Path, tmp_path: Path) -> None:
    recorded = files.DATA / "measured" / REFERENCE
    for folder in (data, tmp_path / "clone"):
        (folder / REFERENCE).mkdir(parents=True)
        for name in ("gpu.json", "runs.csv"):
            shutil.copy(recorded / name, folder / REFERENCE / name)
    before = contents(data)
    merge([tmp_path / "clone"])
    assert contents(data) == before


def test_a_record_without_a_uuid_is_of_no_card_that_has_one(data: Path, tmp_path: Path) -> None:
    recorded = files.DATA / "measured" / REFERENCE
    gpu = json.loads((recorded / "gpu.json").read_text())
    for folder, uuid in ((data, CARD["uuid"]), (tmp_path / "clone", None)):
        (folder / REFERENCE).mkdir(parents=True)
        shutil.copy(recorded / "runs.csv", folder / REFERENCE / "runs.csv")
        kept = {name: value for name, value in {**gpu, "uuid": uuid}.items() if value is not None}
        (folder / REFERENCE / "gpu.json").write_text(json.dumps(kept))
    with pytest.raises(DataError, match=f"{REFERENCE} is of a card without a UUID, and .* of another: rename it"):
        merge([tmp_path / "clone"])


def test_what_cannot_be_merged_is_said(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    node(data, ["r1"])
    assert main([str(tmp_path / "empty")]) == 1
    assert main([str(data)]) == 1
    said = capsys.readouterr().err
    assert "empty holds no folder of a card, with its gpu.json" in said and "is the folder that is merged into" in said
    source = node(tmp_path / "a", ["r2"])
    with locked(data / CARD["slug"]), pytest.raises(Locked):
        merge([source])
    path = source / CARD["slug"] / "checks.csv"
    path.write_bytes(path.read_bytes()[:-1])
    before = contents(data)
    assert main([str(source)]) == 1
    assert f"{path}, line 3: the last line has no end" in capsys.readouterr().err and contents(data) == before
