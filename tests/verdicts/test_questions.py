"""Questions: answers follow the values, what is missing is said, and every one can be settled on any GPU's data."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from analysis.book.chapters.ablations import described
from analysis.book.chapters.questions import evidence_table
from analysis.records.files import DataError, gpu_folder
from analysis.records.interval import Ratio
from analysis.records.text import number, span
from analysis.verdicts import claims, facts
from analysis.verdicts.expressions import names_in
from analysis.verdicts.facts import Facts
from analysis.verdicts.measures import embedded, forgotten_rope
from analysis.verdicts.questions import (
    NOT_YET,
    OPEN,
    Answer,
    Item,
    Question,
    Result,
    Settled,
    above,
    below,
    load,
    settle,
    write,
)
from kernels import VERSIONS

ALL = {f"{question.chapter} {question.id}": question for question in load()}
TOLERANCE = 5e-2  # what the source's programs compare with


def at(value: float, hdim: int = 512, unit: str = "×", printed: float | None = None) -> Result:
    """A value known to one per cent."""
    return Result(unit, {hdim: Ratio(value, 0.99 * value, 1.01 * value)}, {} if printed is None else {hdim: printed})


def unknown(hdim: int = 512) -> Result:
    return Result(not_measured=[hdim])


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


def test_bounds_are_those_of_the_intervals_and_of_something_measured() -> None:
    assert above(at(1.5), 1.4) and not above(at(1.5), 1.49)
    assert below(at(1.5), 1.6) and not below(at(1.5), 1.51)
    assert not above(unknown(), 0) and not below(unknown(), 100)
    assert above(at(1.5), unknown(), 1.4) and not above(at(1.5), at(1.3), 1.4)
    alone = Result(values={512: Ratio(1.5, float("nan"), float("nan"))})  # a single process has no interval
    assert above(alone, 1.49) and below(alone, 1.51)


def test_a_sentence_without_its_values_is_left_out_and_what_is_missing_is_listed() -> None:
    question = Question(
        "why",
        "causes",
        "Why?",
        (512,),
        {"known": Item("this", "2"), "absent": Item("that, over this", 'speed("rope_v7", "rope_v4", hdim)')},
        (Answer("So", "above(known, 1)"), Answer("Not so")),
        ("It {known:as} it.", "Printed: {known:printed}.", "And {absent} more."),
    )
    settled = Settled(question, {"known": at(2.0, printed=1.66), "absent": unknown()}, "From nothing.")
    expected = f"It is 2.00× as fast as it. Printed: 1.66×. N{NOT_YET[1:]}: that, over this."
    assert (settled.answer, settled.because) == ("So", expected)
    assert [row[0] for row in evidence_table(settled).rows] == ["this", "that, over this"]
    assert "not yet" in evidence_table(settled).rows[1][1]


def test_places_take_head_dims_names_and_numbers_with_a_unit() -> None:
    both = Result("%", {512: Ratio(60, 59, 61), 2048: Ratio(30, 29, 31)}, name="V2")
    results = {"v2": both, "v3": replace(at(80.0), name="V3"), "v6": replace(at(7.0), name="V6")}
    assert write("{v2}; {dims_above(v2, 50)}; {dims_below(v2, 70)}", results) == "30–60 %; 512; 512 and 2048"
    assert write("{dims_below(v2, 50)}: {at(v2, dims_below(v2, 50))}", results) == "2048: 30 %"
    assert write("{names_above(v3, v6, 50)}, not {names_not_above(v2, v3, v6, 50)}", results) == "V3, not V2 and V6"
    assert write("{100 - min(v2, v3):%}", results) == "70 %"


# ---------------------------------------------------------------- questions.yml


ONE = {
    "id": "why", "chapter": "causes", "question": "Why?", "dims": [512, 2048], "claims": ["A-01"], "needs": ["fast"],
    "items": {"fast": {"what": "this", "measure": 'speed("rope_v7", "rope_v4", hdim)'}},
    "answers": [{"when": "above(fast, 1.03)", "says": "By {fast}"}, {"says": "Not so"}],
    "because": ["It {fast:as} it."],
}  # fmt: skip


def item(**fields: object) -> dict:
    return {"items": {"fast": {**ONE["items"]["fast"], **fields}}}  # type: ignore[index]


def answers(when: str, says: str = "So") -> dict:
    return {"answers": [{"when": when, "says": says}]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"stands": "So"}, "'stands' is unknown; allowed: id, chapter, question"),
        ({"chapter": "riddles"}, "chapter is 'riddles'; allowed: contradictions, causes"),
        ({"claims": ["A-99"]}, "there is no claim 'A-99'"),
        ({"needs": ["slow"]}, "it needs 'slow'; items are: fast"),
        (item(measure='us("rope_v77", hdim)'), "item fast: 'rope_v77' is neither registered nor listed under wanted"),
        (item(measure="open('x')"), "item fast: \"open('x')\"; functions are: us, speed, "),
        (item(measure='us("rope_v7", hdim) > 1'), "is neither a call, a name, a constant nor arithmetic"),
        (item(printed="said(row)"), "'row' is not among the names: hdim"),
        (item(printed="said(row)", each={"row": ["N003"]}), "row of each is a list of 2, one for every head dim"),
        (item(printed="said(row)", each={"row": ["N003", "N9999"]}), "published.csv has no row N9999"),
        ({"answers": []}, "it has no answer"),
        (
            {"answers": [{"says": "So"}, {"says": "Not so"}]},
            "answer 1: only the last answer may do without a condition",
        ),
        (answers("above(slow, 1)"), "answer 1: 'slow' is not among the names: fast"),
        (answers("speed(fast, 1)"), "functions are: above, below, known, at, "),
        (answers("fast.values"), "is neither a call, a name, a constant nor a comparison of two"),
        (answers("1 < 2"), "answer 1: '1 < 2' names no item; items are: fast"),
        (answers("above(fast, 1)", "By {slow}"), "'slow' is not among the names: fast"),
        ({"because": ["It {slow:as} it."]}, "'slow' is not among the names: fast"),
        ({"because": ["It {fast:an} it."]}, "{fast:an}; allowed: printed, as, or no colon"),
        ({"because": ["It {fast:printed} it."]}, "nothing is printed for fast"),
        ({"because": ["It {fast it."]}, "expected '}' before end of string"),
    ],
)
def test_what_is_wrong_is_named_by_file_question_and_what_is_allowed(tmp_path: Path, change: dict, says: str) -> None:
    path = tmp_path / "questions.yml"
    path.write_text(yaml.safe_dump({"questions": [{**ONE, **change}]}, allow_unicode=True))
    with pytest.raises(DataError) as error:
        load(path)
    assert f"{path}, why" in str(error.value) and says in str(error.value)


def test_an_id_is_taken_once_in_a_chapter(tmp_path: Path) -> None:
    path = tmp_path / "questions.yml"
    path.write_text(yaml.safe_dump({"questions": [ONE, {**ONE, "chapter": "contradictions"}]}))
    assert [question.chapter for question in load(path)] == ["causes", "contradictions"]
    path.write_text(yaml.safe_dump({"questions": [ONE, ONE, ONE]}))
    with pytest.raises(DataError, match="why: the id is taken in the chapter causes"):
        load(path)


@pytest.mark.parametrize("key", ALL)
def test_what_is_compared_with_is_named_behind_the_ratio(key: str) -> None:
    """ "ties with with one thread a key" and "at 0.9× the speed of without" are no sentences."""
    assert not re.search(r":as} with", " ".join(ALL[key].because))


def test_every_contradiction_in_the_ledger_is_argued() -> None:
    argued = [set(question.claims) for question in ALL.values() if question.chapter == "contradictions"]
    for claim in claims.load():
        for other in claim.contradicts:
            assert any({claim.id, other} <= pair for pair in argued), f"{claim.id} against {other}"


def test_every_question_is_about_claims_and_ends_with_a_question_mark() -> None:
    assert all(question.claims and question.question.endswith("?") for question in ALL.values())


# ---------------------------------------------------------------- settled


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
    for key, question in ALL.items():
        settled = settle(question, empty)
        assert "nan " not in settled.because.replace("no comparison with NaN", ""), key
        assert not any(result.undecided for result in settled.results.values()), key
        if not settled.open:  # it must not have looked at what was not measured
            looked = Looked(settled.results)
            assert replace(settled, results=looked).answer == settled.answer
            assert all(settled.results[name] for name in looked.at), key
    assert settle(ALL["contradictions nan"], empty).answer == OPEN
    assert settle(ALL["contradictions tensor_cores"], empty).open
    assert settle(ALL["contradictions ceilings"], empty).answer == "The write-up's: the A100 was not the card"


class Looked(dict[str, Result]):
    """Results that note which of them are looked at."""

    def __init__(self, results: Mapping[str, Result]) -> None:
        super().__init__(results)
        self.at: set[str] = set()

    def __getitem__(self, name: str) -> Result:
        self.at.add(name)
        return super().__getitem__(name)


@pytest.fixture(scope="module")
def recorded() -> Facts:
    return Facts(gpu_folder("nvidia-h200"))


@pytest.fixture(scope="module")
def answered(recorded: Facts) -> dict[str, Settled]:
    return {key: settle(question, recorded) for key, question in ALL.items()}


@pytest.mark.parametrize("key", ALL)
def test_on_the_recorded_gpu_every_item_is_measured_refused_or_waits(answered: dict[str, Settled], key: str) -> None:
    settled = answered[key]
    reasons = {reason for each in settled.results.values() for reason in each.undecided.values()}
    assert all(" refuses hdim " in reason or " has no time by " in reason for reason in reasons), f"{key}: {reasons}"
    assert any(settled.results.values()) or settled.open


COMPARED = re.compile(r'(speed\()("\w+"), ("\w+"),|(closed\()("\w+"), ("\w+"), ("\w+"),')


def _swap(call: re.Match) -> str:
    """The call with the versions that are compared swapped: a version and another, or a version and the reference."""
    speed, version, other, closed, slow, without, reference = call.groups()
    return f"{speed}{other}, {version}," if speed else f"{closed}{reference}, {without}, {slow},"


def _deciding(question: Question) -> list[str]:
    """What is measured for the items that the conditions of the answers name."""
    return [question.items[name].measure for each in question.answers for name in names_in(each.when)]


# Its kernels disagree, one gains and one loses, and after the swap they still do.
BOTH_WAYS = "contradictions shared_query"


@pytest.mark.parametrize(
    "key", [key for key, each in ALL.items() if key != BOTH_WAYS and any(map(COMPARED.search, _deciding(each)))]
)
def test_an_answer_changes_when_the_versions_compared_are_swapped(
    recorded: Facts, answered: dict[str, Settled], key: str
) -> None:
    """Every answer that hangs on a speed or on the share of a gap."""
    question = ALL[key]
    items = {name: replace(each, measure=COMPARED.sub(_swap, each.measure)) for name, each in question.items.items()}
    assert settle(replace(question, items=items), recorded).answer != answered[key].answer


@pytest.mark.parametrize(
    ("key", "planted", "says"),
    [
        ("contradictions baseline", {"scalar": at(1.9), "float4": at(0.9)}, "Both, each against its own baseline"),
        ("contradictions baseline", {"scalar": at(1.9), "float4": at(1.2)}, "The write-up's, against either baseline"),
        ("contradictions baseline", {"scalar": at(0.9), "float4": at(0.8)}, "The analysis's, against either baseline"),
        ("contradictions cliff", {"kv": at(1, 8192), "l2": at(60, 8192), "fall": at(15, 8192), "held": at(73, 8192)},
         "Not the cache, which holds K and V, but the shapes"),
        ("contradictions cliff", {"kv": at(100, 8192), "l2": at(60, 8192), "fall": at(15, 8192), "held": at(73, 8192)},
         "The write-up's: K and V do not fit"),
        ("contradictions rates", {"online": at(0.54, printed=2.16), "two_pass": at(0.76, printed=0.76)},
         "The summary's, for another kernel"),
        ("contradictions rates", {"online": at(2.16, printed=2.16), "two_pass": at(0.76, printed=0.76)},
         "The write-up's"),
        ("contradictions nan", {"nan": at(75.0)}, "Not all"),
        ("contradictions nan", {"nan": at(0.0)}, "All"),
        ("contradictions ceiling", {"memory": at(20.0), "fp32": at(3.0)}, "Neither: no ceiling is near"),
        ("contradictions ceiling", {"memory": at(80.0), "fp32": at(3.0)}, "One ceiling is near"),
        ("contradictions outer_loop", {"sinusoidal": at(1.3), "rope": at(0.8)}, "Neither: it is the other way round"),
        ("contradictions outer_loop", {"sinusoidal": at(1.3), "rope": at(1.4)}, "The write-up's rule"),
        ("contradictions outer_loop", {"sinusoidal": at(0.97), "rope": at(1.4)}, "The analysis's"),
        ("contradictions loads_or_rotations", {"loads": at(80.0), "turning": at(10.0)}, "The log's: the loads"),
        ("contradictions loads_or_rotations", {"loads": at(10.0), "turning": at(80.0)},
         "The write-up's: the rotations"),
        ("causes bound", {"dram": at(70.0), "l2": at(20.0)}, "By memory"),
        ("causes bound", {"threads": at(2.0)}, "Neither by memory nor by issue: by idle lanes"),
        ("causes bound", {"threads": at(1.0)}, "Neither by memory nor by issue: by latency, and not by idle lanes"),
        ("causes bound", {"issue": at(80.0)}, "By issue"),
        ("causes rotation", {"v2": at(90.0), "v3": at(80.0), "v6": at(70.0)}, "By rotating again"),
        ("causes rotation", {"v2": at(90.0), "v3": at(80.0), "v6": at(7.0)},
         "By rotating again in V2 and V3, not in V6"),
        ("causes rotation", {"v2": at(9.0), "v3": at(8.0), "v6": at(7.0)}, "Not by rotating again"),
        ("causes hybrid", {"device": at(1.3), "launched": at(1.4)}, "By fusion: it wins on the device"),
        ("causes hybrid", {"device": at(0.9), "launched": at(1.4)},
         "Not by fusion, which loses on the device; at 512 it wins by a launch and a sync less"),
        ("causes hybrid", {"device": at(0.9), "launched": at(1.4), "one_sync": at(0.9)},
         "Not by fusion, which loses on the device; at 512 it wins by a sync less"),
        ("causes rotation", {"v2": at(90.0), "v6": at(7.0), "threads6": at(80.0)},
         "By rotating again in V2, not in V6; V6 by idle lanes"),
        ("causes phase6", {"warp": at(90.0, 64), "own": at(5.0, 64)}, "To idle threads, not to register pressure"),
        ("causes phase6", {"warp": at(20.0, 64), "own": at(90.0, 64)}, "To register pressure"),
    ],
)  # fmt: skip
def test_the_answer_follows_the_values(key: str, planted: dict[str, Result], says: str) -> None:
    question = replace(ALL[key], needs=())
    assert planted.keys() <= question.items.keys()
    results = {name: replace(unknown(), name=each.name) for name, each in question.items.items()}
    results |= {name: replace(value, name=results[name].name) for name, value in planted.items()}
    assert Settled(question, results, "").answer == says


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
    assert embedded(recorded, version, 2048) == pytest.approx(times, rel=1e-3)


def test_rope_forgotten_shows_where_scores_spread(recorded: Facts) -> None:
    assert forgotten_rope(recorded, 128, "sharp") > 1 > TOLERANCE
    assert 0 < forgotten_rope(recorded, 128, "uniform") < 0.1


def test_every_ablation_is_listed_with_what_it_changes() -> None:
    listed = described()
    assert {name for name, version in VERSIONS.items() if version.ablation} <= set(listed)
    assert all(change for change, _ in listed.values())
