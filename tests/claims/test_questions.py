"""Questions: answers follow the values, what is missing is said, and every one can be settled on any GPU's data."""

import json
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from analysis.claims import causes, contradictions
from analysis.claims.claim import CLAIMS
from analysis.claims.judge import claims
from analysis.claims.measures import embedded, forgotten_rope
from analysis.claims.question import QUESTIONS, Settled, item
from analysis.evidence import Estimate, Estimates, Evidence, load
from analysis.record.files import REFERENCE, gpu_folder

CHAPTERS = causes, contradictions
TOLERANCE = 5e-2  # what the source's programs compare with
QUESTION = pytest.mark.parametrize("key", QUESTIONS)


class Swapped(Evidence):
    """Evidence in which a version and what it is compared with change places, and which notes that they were asked."""

    asked = False

    def speedup(self, version: str, over: str, *rest: Any, **asked: Any) -> Estimates:
        type(self).asked = True
        return super().speedup(over, version, *rest, **asked)

    def share_closed(self, version: str, without: str, over: str, *rest: Any, **asked: Any) -> Estimates:
        type(self).asked = True
        return super().share_closed(over, without, version, *rest, **asked)


@pytest.fixture(scope="module")
def e() -> Evidence:
    return Evidence.load(REFERENCE)


@pytest.fixture(scope="module")
def settled(e: Evidence) -> dict[tuple[str, str], Settled]:
    return {key: each.settle(e) for key, each in QUESTIONS.items()}


def test_an_item_shows_its_range_one_value_and_what_is_printed() -> None:
    both = Estimates({512: Estimate(2.0, 1.9, 2.1), 2048: Estimate.exact(3.0)})
    one = item("this", both, printed=Estimate.exact(2.05))
    assert f"{one} {one[512]} {one[512]:printed}" == "2.00–3.00× 2.00× 2.05×"
    assert one.at(512).near(0.05).intervals and one.near(0.05).values is False
    assert (one > 1.95).values and not (one > 1.95).intervals
    assert f"{item('that', Estimates({}))}" == "not measured"


@QUESTION
def test_an_answer_holds_on_the_reference_and_its_places_are_items(
    settled: dict[tuple[str, str], Settled], key: tuple[str, str]
) -> None:
    one = settled[key]
    assert one.holds.intervals is True
    assert set(one.question.about) <= {claim.id for claim in claims()} == set(CLAIMS)
    for _, place, _, _ in Formatter().parse(one.question.answer + one.question.because):
        name, _, hdim = (place or "card").rstrip("]").partition("[")
        assert name == "card" or not hdim or int(hdim) in one.items[name].measured, place
    assert "not measured" not in (one.question.answer + one.question.because).format(**one.numbers)
    refused = {why.word for each in one.items.values() for value in each.measured.values() if (why := value.why)}
    assert refused <= {"infeasible", "undecided"}


@QUESTION
def test_an_answer_ceases_to_hold_when_the_versions_compared_are_swapped(e: Evidence, key: tuple[str, str]) -> None:
    """Every answer that depends on a speed or on the share of a gap; two ask these for their tables alone."""
    Swapped.asked = False
    found = QUESTIONS[key].settle(Swapped(e.record)).holds.values
    assert found is (not Swapped.asked) or key in {("contradictions", "rates"), ("contradictions", "memory_share")}


def test_of_a_gpu_of_which_nothing_is_measured_no_question_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = json.loads((gpu_folder(REFERENCE) / "gpu.json").read_text())
    (tmp_path / "gpu.json").write_text(json.dumps({**known, "ceilings": {}}))
    for name in ("COUNTS", "RESOURCES"):
        monkeypatch.setattr(load, name, tmp_path / "none.csv")
    empty = Evidence.load(tmp_path)
    assert {each.settle(empty).holds.values for each in QUESTIONS.values()} == {None}


@pytest.mark.parametrize(
    ("version", "times"),
    [
        ("sinusoidal_separate_float4", 1.0), ("sinusoidal_hybrid_v1", 1.0), ("sinusoidal_hybrid_v2", 32.5),
        ("sinusoidal_v1", 64.0), ("sinusoidal_v2", 64.0), ("sinusoidal_v5", 64.0),
        ("rope_v1c", 32.5), ("rope_v3", 8.5), ("rope_v7", 1.0),
    ],
)  # fmt: skip
def test_how_often_an_element_is_embedded_follows_from_the_shape(e: Evidence, version: str, times: float) -> None:
    """64 queries and 64 keys: 2 S S / (S + S) where both are embedded for every pair, half that and a half for one."""
    assert embedded(e, version, 2048)[2048].value == pytest.approx(times, rel=1e-3)


def test_rope_forgotten_shows_where_scores_spread() -> None:
    assert forgotten_rope((128,), "sharp")[128].value > 1 > TOLERANCE
    assert 0 < forgotten_rope((128,), "uniform")[128].value < 0.1
