"""Questions: answers follow the values, what is missing is said, and every one can be settled on any GPU's data."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from analysis.book.questions import NOT_YET, evidence_table, overview
from analysis.records.files import DataError, gpu_folder
from analysis.records.interval import LIKELY, Ratio
from analysis.verdicts import facts
from analysis.verdicts.expressions import names_in
from analysis.verdicts.facts import Facts
from analysis.verdicts.measures import embedded, forgotten_rope
from analysis.verdicts.questions import Item, Question, Result, Settled, at, load, near, settle

ALL = {f"{question.chapter} {question.id}": question for question in load()}
TOLERANCE = 5e-2  # what the source's programs compare with


def measured(value: float, hdim: int = 512, unit: str = "×", printed: float | None = None) -> Result:
    """A value known to one per cent."""
    return Result(unit, {hdim: Ratio(value, 0.99 * value, 1.01 * value)}, {} if printed is None else {hdim: printed})


def unknown(hdim: int = 512) -> Result:
    return Result(not_measured=[hdim])


# ---------------------------------------------------------------- words


def test_a_result_lies_above_or_below_with_its_whole_interval() -> None:
    assert measured(1.5) > 1.4 and not measured(1.5) > 1.49
    assert measured(1.5) < 1.6 and not measured(1.5) < 1.51
    assert measured(1.5) > measured(1.4) and not measured(1.5) > measured(1.49)
    assert measured(1.4) < measured(1.5) and not measured(1.49) < measured(1.5)
    alone = Result(values={512: Ratio(1.5, float("nan"), float("nan"))})  # a single process has no interval
    assert alone > 1.49 and alone < 1.51
    both = Result(values=measured(2.0).values | measured(0.5, 2048).values)
    assert not both > 1.03 and at(both, 512) > 1.03 and at(both, 2048) < 1
    assert near(measured(2.0, printed=2.05), 0.05) and not near(measured(2.0, printed=2.5), 0.05)


def question(holds: str) -> Question:
    items = {"fast": Item("this", "2", printed="3"), "absent": Item("that", 'speed("rope_v7", "rope_v4", hdim)')}
    return Question(
        "why", "causes", "Why?", (512,), items, holds, "It is {fast}.", "On the {card}, {fast[512]:printed}."
    )


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ("fast > 1.03", True), ("fast < 1", False), ("absent > 1", None), ("fast > 1 and absent > 1", None),
        ("fast < 1 and absent > 1", False), ("at(fast, 2048) > 1", None), ("fast > absent", None),
        ("near(absent, 0.5)", None),
    ],
)  # fmt: skip
def test_what_is_not_measured_neither_holds_nor_fails(holds: str, expected: bool | None) -> None:
    results = {"fast": measured(2.0, printed=1.66), "absent": unknown()}
    settled = Settled(question(holds), results, "From nothing.", "Card")
    assert settled.holds is expected
    text = f"{settled.question.answer} {settled.question.because}"
    assert text.format(**settled.numbers) == "It is 2.00×. On the Card, 1.66×."
    assert [row[0] for row in evidence_table(settled).rows] == ["this", "that"]
    assert NOT_YET in evidence_table(settled).rows[1][1]


def test_an_answer_is_likely_where_its_values_say_so_and_an_interval_does_not() -> None:
    wide = Result(values={512: Ratio(2.0, 0.5, 8.0)})
    settled = Settled(question("fast > 1.03"), {"fast": wide, "absent": unknown()}, "From nothing.", "Card")
    assert settled.holds is LIKELY
    assert overview({"q": settled}).rows[0][1] == "It is 2.00×."
    assert replace(settled, question=question("fast > 3")).holds is False


# ---------------------------------------------------------------- questions.yml


ONE = {
    "id": "why", "chapter": "causes", "question": "Why?", "dims": [512, 2048], "claims": ["A-01"],
    "items": {"fast": {"what": "this", "measure": 'speed("rope_v7", "rope_v4", hdim)'}},
    "holds": "fast > 1.03", "answer": "It is {fast}.", "because": "At 512 it is {fast[512]} on the {card}.",
}  # fmt: skip


def item(**fields: object) -> dict:
    return {"items": {"fast": {**ONE["items"]["fast"], **fields}}}  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"claims": ["A-99"]}, "there is no claim 'A-99'"),
        (item(measure='us("rope_v77", hdim)'), "item fast: 'rope_v77' is neither registered nor listed under wanted"),
        ({"holds": "slow > 1"}, "holds: 'slow' is not among the names: fast"),
        ({"holds": "1 < 2"}, "'1 < 2' names no item; items are: fast"),
        ({"because": "It is {fast[128]}."}, "{fast[128]}: head dims of fast are: 512, 2048"),
    ],
)
def test_what_is_wrong_is_named_by_file_question_and_what_is_allowed(tmp_path: Path, change: dict, says: str) -> None:
    path = tmp_path / "questions.yml"
    path.write_text(yaml.safe_dump({"questions": [{**ONE, **change}]}, allow_unicode=True))
    with pytest.raises(DataError) as error:
        load(path)
    assert f"{path}, why" in str(error.value) and says in str(error.value)


# ---------------------------------------------------------------- settled


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Facts:
    """A GPU of which only its identity is known, and no counts or resources."""
    known = json.loads((gpu_folder("nvidia-h200") / "gpu.json").read_text())
    (tmp_path / "gpu.json").write_text(json.dumps({**known, "ceilings": {}}))
    for name in ("COUNTS", "RESOURCES"):
        monkeypatch.setattr(facts, name, tmp_path / "none.csv")
    return Facts(tmp_path)


def test_of_a_gpu_of_which_nothing_is_measured_no_question_is_answered(empty: Facts) -> None:
    known = {key for key, each in ALL.items() if settle(each, empty).holds is not None}
    assert known == set()
    for each in ALL.values():
        assert not any(result.undecided for result in settle(each, empty).results.values()), each.id


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
    assert settled.holds is True


COMPARED = re.compile(r'(speed\()("\w+"), ("\w+"),|(closed\()("\w+"), ("\w+"), ("\w+"),')


def _swap(call: re.Match) -> str:
    """The call with the versions that are compared swapped: a version and another, or a version and the reference."""
    speed, version, other, closed, slow, without, reference = call.groups()
    return f"{speed}{other}, {version}," if speed else f"{closed}{reference}, {without}, {slow},"


def _deciding(asked: Question) -> list[str]:
    """What is measured for the items that the condition names."""
    return [asked.items[name].measure for name in names_in(asked.holds)]


@pytest.mark.parametrize("key", [key for key, each in ALL.items() if any(map(COMPARED.search, _deciding(each)))])
def test_an_answer_ceases_to_hold_when_the_versions_compared_are_swapped(recorded: Facts, key: str) -> None:
    """Every answer that depends on a speed or on the share of a gap."""
    items = {name: replace(each, measure=COMPARED.sub(_swap, each.measure)) for name, each in ALL[key].items.items()}
    assert settle(replace(ALL[key], items=items), recorded).holds is False


@pytest.mark.parametrize("key", ALL)
def test_an_answer_ceases_to_hold_when_any_deciding_value_is_another(answered: dict[str, Settled], key: str) -> None:
    """Far above or far below: a value that could be anything decides nothing."""
    settled = answered[key]
    chosen = re.findall(r"at\((\w+), ([\d, ]+)\)", settled.question.holds)
    for name in names_in(settled.question.holds):
        result = settled.results[name]
        dims = {int(hdim) for at_name, hdims in chosen if at_name == name for hdim in hdims.split(",")}
        for hdim in dims or result.values:
            others = [replace(result, values={**result.values, hdim: Ratio(far, far, far)}) for far in (-1e9, 1e9)]
            changed = [replace(settled, results={**settled.results, name: other}) for other in others]
            assert False in [each.holds for each in changed], f"{name} at {hdim}"


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
