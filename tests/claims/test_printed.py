"""No published number is passed over, and what stands beside one is in its own unit and sense."""

import json
import shutil
from pathlib import Path

import pytest

from analysis.claims import printed
from analysis.claims.printed import CONFIRMED, DIFFERS, Beside, agrees
from analysis.evidence import Evidence
from analysis.record import files, published
from analysis.record.files import REFERENCE


@pytest.fixture(scope="module")
def e() -> Evidence:
    return Evidence.load(REFERENCE)


@pytest.fixture(scope="module")
def everything(e: Evidence) -> list[Beside]:
    return printed.beside(e)


@pytest.fixture(scope="module")
def by_id(everything: list[Beside]) -> dict[str, Beside]:
    return {one.row["id"]: one for one in everything}


def test_every_number_has_a_value_or_a_reason(everything: list[Beside]) -> None:
    assert [one.row["id"] for one in everything] == list(published.load()["id"])
    for one in everything:
        assert bool(one.values) != bool(one.reason), one.row["id"]
        assert all(value.value == value.value for value in one.values), one.row["id"]


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("N045", 2 * 64 * 64 * 2048),  # sincos calls of a head, by the document's formula
        ("N355", 64 + 64 * 64),  # rotations of V1
        ("N190", 64 * 64 * 128),  # elements of K that V6 rotates
        ("N188", (64 + 64) * 128),
        ("N052", (3 * 4 + 2) * 4 * 64 * 2048),  # Q, K, V of four heads and two tables
        ("N063", 4 * 4 * 64 * 2048),
        ("N232", 262144 / 557056),
        ("X053", 4 * (257 * (512 + 8) + 96)),  # the formulas of the sources
        ("X054", 4 * (80 * (2048 + 8) + 96)),
        ("X090", 4 * (8256 + 4096 + 128 / 2)),
        ("N207", 3),
        ("X123", 1 + 8 * 2 + 1),
    ],
)
def test_figures_counted_by_hand_are_what_plan_and_emulator_say(
    by_id: dict[str, Beside], row: str, value: float
) -> None:
    assert [(one.value, one.low) for one in by_id[row].values] == [(pytest.approx(value), pytest.approx(value))]
    assert by_id[row].outcome == CONFIRMED


def test_known_errors_of_the_documents_differ(by_id: dict[str, Beside]) -> None:
    assert {by_id[row].outcome for row in ("N025", "N357", "N365", "N385", "N416", "N320")} == {DIFFERS}
    derived = by_id["N302"].also["its published time gives"]  # printed as 2.16 TFLOPS
    assert derived == pytest.approx(4 * 4 * 64 * 64 * 512 / 0.062e-3 / 1e12)


def test_a_ratio_stands_in_the_sense_of_its_row(by_id: dict[str, Beside], e: Evidence) -> None:
    found = {name: one.values[0] for name, one in by_id.items() if one.values}
    slower = e.speedup("rope_separate", "rope_v1c", hdim=128)[128]  # how many times as long V1c takes
    assert found["N111"].value == pytest.approx(slower.value) and found["N111"].low == pytest.approx(slower.low)
    taken = e.time("rope_v1c", hdim=128)[128]
    assert found["N109"].value == pytest.approx(taken.value) and by_id["N109"].outcome == ""
    phase4, phase6 = (found[row].value for row in ("N401", "N407"))
    assert found["N423"].value == pytest.approx(100 * (phase6 / phase4 - 1), rel=0.02)  # % slower
    least, most = found["N213"], found["N214"]  # "1.4 to 1.66 times"
    assert least.value < most.value == found["N199"].value


@pytest.mark.parametrize(
    ("stated", "value", "same"),
    [
        (16_800_000, 16_777_216, True), (16_800_000, 33_554_432, False), (0, 0, True), (0, 1, False),
        (7.3, 7.34, True), (7.3, 12.58, False), (0.47, 0.4706, True), (0.47, 0.48, False), (3.36, 3.3655, True),
        (4096, 4096, True), (4096, 4160, False), (10_000, 11_300, False), (32, 32.5, True), (32, 64, False),
        (64, 64.9, False), (100, 0, False), (2, 18, False), (150, 148.3, True),
    ],
)  # fmt: skip
def test_a_value_agrees_to_the_last_printed_digit(stated: float, value: float, same: bool) -> None:
    assert agrees(stated, value) is same


def test_a_number_that_nothing_speaks_of_is_an_error(by_id: dict[str, Beside], e: Evidence) -> None:
    with pytest.raises(ValueError, match="nothing says what stands beside N045"):
        printed.stand(by_id["N045"].row, None, e)


def test_a_study_that_is_not_measured_is_a_reason(by_id: dict[str, Beside], tmp_path: Path) -> None:
    folder = tmp_path / REFERENCE
    shutil.copytree(files.MEASURED / REFERENCE, folder)
    for path in folder.glob("*/run.json"):
        said = json.loads(path.read_text())
        said["studies"].pop("log", None)
        path.write_text(json.dumps(said))
    one = printed.stand(by_id["N301"].row, None, Evidence.load(folder))
    assert not one.values and one.reason == "study log is not measured"
