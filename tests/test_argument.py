"""Arguments: their words follow the values, what is missing is said, and every one can be settled on any GPU's data."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from analysis.book.fusion import FUSION, embedded
from analysis.records.files import gpu_folder
from analysis.records.interval import Ratio
from analysis.records.text import number, span
from analysis.verdicts import facts
from analysis.verdicts.argument import (
    NOT_YET,
    OPEN,
    Argument,
    Found,
    Item,
    Settled,
    _names,
    evidence_table,
    settle,
)
from analysis.verdicts.causes import CAUSES, _described
from analysis.verdicts.claims import load
from analysis.verdicts.contradictions import CONTRADICTIONS, TOLERANCE, forgotten_rope
from analysis.verdicts.facts import Facts
from analysis.verdicts.rule import Undecided
from kernels import VERSIONS

ALL = {**CONTRADICTIONS, **{f"cause {key}": each for key, each in CAUSES.items()}, **FUSION}


def at(value: float, hdim: int = 512, unit: str = "×", said: float | None = None) -> Found:
    """A value known to one per cent."""
    return Found(unit, {hdim: Ratio(value, 0.99 * value, 1.01 * value)}, {} if said is None else {hdim: said})


def unknown(hdim: int = 512) -> Found:
    return Found(missing={hdim: NOT_YET})


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.944, "×", "1.94×"), (0.0625, "×", "0.0625×"), (128, "×", "128×"), (17.34, "%", "17.3 %"), (0, "%", "0 %"),
        (67_108_864, "B", "67,108,864 B"), (1.2e-7, "", "1.2e−07"), (-94.46, "µs", "−94.5 µs"), (48, "MiB", "48 MiB"),
    ],
)  # fmt: skip
def test_a_number_has_three_digits_and_its_unit(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


def test_a_range_names_its_unit_once() -> None:
    assert span([17.34, 19.12], "%") == "17.3–19.1 %"
    assert span([2.0, 2.0], "×") == "2.00×"
    assert span([-3.0, 5.5], "µs") == "−3 to 5.5 µs"
    assert span([0.98, 1.016], "×", 2) == "0.98–1.02×" and span([12.0, 300.4], digits=1) == "12.0–300.4"
    assert span([], "×") == number(float("nan"), "%") == "–"


def test_bounds_are_those_of_the_intervals_and_of_something_found() -> None:
    assert at(1.5).above(1.4) and not at(1.5).above(1.49)
    assert at(1.5).below(1.6) and not at(1.5).below(1.51)
    assert not unknown().above(0) and not unknown().below(100)
    alone = Found(values={512: Ratio(1.5, float("nan"), float("nan"))})  # a single process has no interval
    assert alone.above(1.49) and alone.below(1.51)


def test_a_sentence_without_its_values_is_left_out_and_what_is_missing_is_listed() -> None:
    argument = Argument(
        "Why?",
        (512,),
        {"known": Item("this", lambda f, d: 2.0), "absent": Item("that, over this", lambda f, d: _undecided())},
        lambda found: "So" if found["known"].above(1) else "Not so",
        ("It {known:as} it.", "Printed: {known:printed}.", "And {absent} more."),
    )
    found = {"known": at(2.0, said=1.66), "absent": unknown()}
    settled = Settled(argument, found, "From nothing.")
    expected = f"It is 2.00× as fast as it. Printed: 1.66×. N{NOT_YET[1:]}: that, over this."
    assert (settled.stands, settled.because) == ("So", expected)
    assert [row[0] for row in evidence_table(settled).rows] == ["this", "that, over this"]
    assert "not yet" in evidence_table(settled).rows[1][1]


def _undecided() -> float:
    raise Undecided("study ablation is not measured")


# ---------------------------------------------------------------- the arguments


@pytest.mark.parametrize("key", ALL)
def test_sentences_name_what_is_measured_and_claims_exist(key: str) -> None:
    argument = ALL[key]
    assert set(argument.needs) <= set(argument.items)
    assert {name for text in argument.because for name in _names(text)} <= set(argument.items)
    assert argument.claims and set(argument.claims) <= {claim.id for claim in load()}
    assert argument.question.endswith("?")


@pytest.mark.parametrize("key", ALL)
def test_what_is_compared_with_is_named_behind_the_ratio(key: str) -> None:
    """ "ties with with one thread a key" and "at 0.9× the speed of without" are no sentences."""
    assert not re.search(r":as} with", " ".join(ALL[key].because))


def test_every_contradiction_in_the_ledger_is_argued() -> None:
    argued = [set(argument.claims) for argument in CONTRADICTIONS.values()]
    for claim in load():
        for other in claim.contradicts:
            assert any({claim.id, other} <= pair for pair in argued), f"{claim.id} against {other}"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Facts:
    """A GPU of which only its identity is known, and no counts or resources."""
    known = json.loads((gpu_folder("nvidia-h200") / "gpu.json").read_text())
    (tmp_path / "gpu.json").write_text(json.dumps({**known, "ceilings": {}}))
    header = (gpu_folder("nvidia-h200") / "runs.csv").read_text().splitlines()[0]
    (tmp_path / "runs.csv").write_text(header + "\n")
    for name in ("COUNTS", "RESOURCES"):
        monkeypatch.setattr(facts, name, tmp_path / "none.csv")
    return Facts(tmp_path)


def test_a_gpu_of_which_nothing_is_measured_gets_no_number_and_no_error(empty: Facts) -> None:
    for key, argument in ALL.items():
        settled = settle(argument, empty)
        assert "nan " not in settled.because.replace("no comparison with NaN", ""), key
        if settled.stands != OPEN:  # it must not have looked at what was not found
            looked = Looked(settled.found)
            argument.stands(looked)
            assert all(settled.found[name] for name in looked.at), key
    assert settle(CONTRADICTIONS["nan"], empty).stands == OPEN
    assert settle(CONTRADICTIONS["ceilings"], empty).stands == "The write-up's: the A100 was not the card"


class Looked(dict[str, Found]):
    """Findings that note which of them are looked at."""

    def __init__(self, found: Mapping[str, Found]) -> None:
        super().__init__(found)
        self.at: set[str] = set()

    def __getitem__(self, name: str) -> Found:
        self.at.add(name)
        return super().__getitem__(name)


@pytest.fixture(scope="module")
def recorded() -> Facts:
    return Facts(gpu_folder("nvidia-h200"))


@pytest.mark.parametrize("key", ALL)
def test_on_the_recorded_gpu_every_item_is_found_or_waits_for_a_measurement(recorded: Facts, key: str) -> None:
    settled = settle(ALL[key], recorded)
    reasons = {reason for each in settled.found.values() for reason in each.missing.values()}
    assert all(reason == NOT_YET or "of shared memory" in reason for reason in reasons), f"{key}: {reasons}"
    assert any(settled.found.values()) or settled.stands == OPEN


@pytest.mark.parametrize(
    ("key", "planted", "says"),
    [
        ("baseline", {"scalar": at(1.9), "float4": at(0.9)}, "Both, each against its own baseline"),
        ("baseline", {"scalar": at(1.9), "float4": at(1.2)}, "The write-up's, against either baseline"),
        ("baseline", {"scalar": at(0.9), "float4": at(0.8)}, "The analysis's, against either baseline"),
        ("cliff", {"kv": at(1, 8192), "l2": at(60, 8192), "fall": at(15, 8192), "held": at(73, 8192)},
         "Not the cache, which holds K and V, but the shapes"),
        ("cliff", {"kv": at(100, 8192), "l2": at(60, 8192), "fall": at(15, 8192), "held": at(73, 8192)},
         "The write-up's: K and V do not fit"),
        ("rates", {"online": at(0.54, said=2.16), "two_pass": at(0.76, said=0.76)},
         "The summary's, for another kernel"),
        ("rates", {"online": at(2.16, said=2.16), "two_pass": at(0.76, said=0.76)}, "The write-up's"),
        ("nan", {"nan": at(75.0)}, "Not all"),
        ("nan", {"nan": at(0.0)}, "All"),
        ("ceiling", {"memory": at(20.0), "fp32": at(3.0)}, "Neither: no ceiling is near"),
        ("ceiling", {"memory": at(80.0), "fp32": at(3.0)}, "One ceiling is near"),
        ("outer_loop", {"sinusoidal": at(1.3), "rope": at(0.8)}, "Neither: it is the other way round"),
        ("outer_loop", {"sinusoidal": at(1.3), "rope": at(1.4)}, "The write-up's rule"),
        ("outer_loop", {"sinusoidal": at(0.97), "rope": at(1.4)}, "The analysis's"),
        ("loads_or_rotations", {"loads": at(80.0), "turning": at(10.0)}, "The log's: the loads"),
        ("loads_or_rotations", {"loads": at(10.0), "turning": at(80.0)}, "The write-up's: the rotations"),
        ("cause bound", {"dram": at(70.0), "l2": at(20.0)}, "By memory"),
        ("cause bound", {"threads": at(2.0)}, "Neither by memory nor by issue: by idle lanes"),
        ("cause bound", {"threads": at(1.0)}, "Neither by memory nor by issue: by latency, and not by idle lanes"),
        ("cause bound", {"issue": at(80.0)}, "By issue"),
        ("cause rotation", {"v2": at(90.0), "v3": at(80.0), "v6": at(70.0)}, "By rotating again"),
        ("cause rotation", {"v2": at(90.0), "v3": at(80.0), "v6": at(7.0)},
         "By rotating again in V2 and V3, not in V6"),
        ("cause rotation", {"v2": at(9.0), "v3": at(8.0), "v6": at(7.0)}, "Not by rotating again"),
        ("cause hybrid", {"device": at(1.3), "launched": at(1.4)}, "By fusion: it wins on the device"),
        ("cause hybrid", {"device": at(0.9), "launched": at(1.4)},
         "Not by fusion, which loses on the device; at 512 it wins by a launch and a sync less"),
        ("cause hybrid", {"device": at(0.9), "launched": at(1.4), "one_sync": at(0.9)},
         "Not by fusion, which loses on the device; at 512 it wins by a sync less"),
        ("cause rotation", {"v2": at(90.0), "v6": at(7.0), "threads6": at(80.0)},
         "By rotating again in V2, not in V6; V6 by idle lanes"),
        ("cause phase6", {"warp": at(90.0, 64), "own": at(5.0, 64)}, "To idle threads, not to register pressure"),
        ("cause phase6", {"warp": at(20.0, 64), "own": at(90.0, 64)}, "To register pressure"),
        ("redundancy", {"sinusoidal": at(64.0), "rope": at(33.0), "least": at(8.5)},
         "No: what fused computes more again than what did not"),
        ("redundancy", {"sinusoidal": at(1.0), "rope": at(33.0), "least": at(8.5)},
         "It may be: what fused computes less"),
        ("baselines", {"scalar": at(1.9), "float4": at(1.3), "rope": at(0.8)},
         "No: it wins against kernels that load alike, too"),
    ],
)  # fmt: skip
def test_what_stands_follows_the_values(key: str, planted: dict[str, Found], says: str) -> None:
    assert planted.keys() <= ALL[key].items.keys()
    assert ALL[key].stands({**dict.fromkeys(ALL[key].items, unknown()), **planted}) == says


# ---------------------------------------------------------------- what is computed for them


@pytest.mark.parametrize(
    ("version", "times"),
    [
        ("sinusoidal_separate_float4", 1.0), ("sinusoidal_hybrid_v1", 1.0), ("sinusoidal_hybrid_v2", 32.5),
        ("sinusoidal_v1", 64.0), ("sinusoidal_v2", 64.0), ("sinusoidal_v5", 64.0),
        ("rope_v1c", 32.5), ("rope_v3", 8.5), ("rope_v7", 1.0),
    ],
)  # fmt: skip
def test_how_often_an_element_is_embedded_follows_from_the_shape(recorded: Facts, version: str, times: float) -> None:
    """64 queries and 64 keys: 2 S S / (S + S) where both are embedded for every pair, half that and a half for one."""
    assert embedded(recorded, version) == pytest.approx(times, rel=1e-3)


def test_rope_forgotten_shows_where_scores_spread() -> None:
    assert forgotten_rope(128, "sharp") > 1 > TOLERANCE
    assert 0 < forgotten_rope(128, "uniform") < 0.1


def test_every_ablation_is_listed_with_what_it_changes() -> None:
    listed = _described()
    assert {name for name, version in VERSIONS.items() if version.ablation} <= set(listed)
    assert all(change for change, _ in listed.values())
