"""Findings: what their sentences say holds on the record they are written for, and nothing else changes them."""

import copy
from collections.abc import Callable
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import pandas as pd
import pytest

from analysis import findings
from analysis.book import numbers as numbers_csv
from analysis.book.build import NOTEBOOKS
from analysis.book.notebook import badge, paragraph
from analysis.evidence import Comparison, Estimate, Estimates, Evidence, NotMeasured
from analysis.findings import DIFFERS, HOLDS, NOT_MEASURED, OPEN, Finding, checks, faster, numbers, validation
from analysis.models import rivals, waves
from analysis.record import published
from analysis.record.files import DATA, REFERENCE, DataError, problem_columns, problem_of, read_rows
from analysis.record.problems import name_of
from analysis.record.runs import read
from analysis.studies import study


def with_times(e: Evidence, name: str, change: Callable[[pd.DataFrame], pd.DataFrame], **parts: Any) -> Evidence:
    """The evidence with other times in one study."""
    found, record = copy.copy(e.study(name)), copy.copy(e.record)
    for cached in ("_timed", "_checked", "taken"):
        found.__dict__.pop(cached, None)
    found.timings = change(found.timings.copy())
    for part, frame in parts.items():
        setattr(found, part, frame)
    record._studies = {**record._studies, (name, None): found}
    return replace(e, record=record)


def test_every_finding_holds_on_its_card_with_its_intervals() -> None:
    assert len(findings.load()) > 60 and findings.broken() == []


def test_every_finding_stands_on_a_page() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb"))
    assert [name for name in findings.load() if f'\\"{name}\\"' not in shown] == []


def test_each_number_of_a_finding_leads_to_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = read_rows(numbers_csv.NUMBERS, "numbers")
    (row,) = [row for row in rows if (row["finding"], row["number"]) == ("loads-swap", "rope")]
    assert "loads" in row["page"].split() and row["low"] < row["value"] < row["high"] and row["timer"] == "device_warm"
    run = read(DATA / "measured" / REFERENCE / row["run"], row["table"])
    mine = [each for each in run if name_of(*problem_columns(problem_of(each)).values()) == row["problems"]]
    us = {version: [] for version in row["versions"].split()}
    for each in mine:
        if each["version"] in us and (each["study"], each["timer"]) == (row["study"], row["timer"]):
            us[each["version"]].append(each["median_us"])
    fast, slow = (geometric_mean(values) for values in us.values())
    assert slow / fast == pytest.approx(row["value"], rel=1e-4)
    assert numbers_csv.main(["loads-swap"]) == 0
    said = capsys.readouterr().out
    interval = f"95 % interval {row['low']:.3g} to {row['high']:.3g}"
    assert f"{row['run']}/timings.csv.gz" in said and "def swap(" in said and interval in said
    with pytest.raises(DataError, match="no finding 'nobody'"):
        numbers_csv.main(["nobody"])


EITHER_WAY = {  # a tie, or the fastest of several, which is another one then
    "decode-free", "method-language",
}  # fmt: skip
OTHERWISE = EITHER_WAY | {  # what decides these is no speedup or share: counters, counts, searches, errors, targets
    "answer-bound", "answer-stands", "answer-tflops", "answer-waits", "attention-bound-loaded", "attention-cliff",
    "half-luck", "half-sms", "method-assembler", "method-counts", "method-coverage", "method-wavefronts",
    "rope-separate", "sinusoidal-race", "use-first", "use-overhead", "use-elsewhere", "use-problems", "wave-releases",
    "wave-relocatable",
}  # fmt: skip

STORY = {  # the same of the story
    "decode-error",
    "checks-barely", "checks-baseline", "checks-cost", "checks-log", "checks-nan", "checks-race", "checks-rotation",
    "checks-sharp", "checks-sure", "checks-test", "loads-once", "loads-sectors",
    "loads-own", "front-checks", "front-sure", "front-verdicts", "setup-cards", "wave-fit", "wave-theirs",
}  # fmt: skip


@pytest.mark.deep
def test_findings_cease_where_comparisons_are_turned_round(e: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    speedup, share, time = Evidence.speedup, Evidence.share_closed, Evidence.time
    monkeypatch.setattr(Evidence, "speedup", lambda self, *asked, **more: 1 / speedup(self, *asked, **more))
    monkeypatch.setattr(Evidence, "share_closed", lambda self, *asked, **more: 1 - share(self, *asked, **more))
    monkeypatch.setattr(Evidence, "time", lambda self, *asked, **more: 1 / time(self, *asked, **more))
    rivals.beside_op.cache_clear()
    holding = {each.id for each in findings.load().values() if each.on(e).badge == HOLDS}
    rivals.beside_op.cache_clear()
    assert holding <= OTHERWISE | STORY


@pytest.mark.deep
def test_findings_on_documents_cease_with_other_rows(e: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = [False], published.by_id()

    def inverted() -> dict[str, dict[str, Any]]:
        asked[0] = True
        return {id: {**row, "value": 1 / (row["value"] or 1), "note": ""} for id, row in real.items()}

    monkeypatch.setattr(published, "by_id", inverted)
    on_documents, holding = set(), set()
    for each in findings.load().values():
        asked[0] = False
        badge_now = each.on(e).badge
        on_documents |= {each.id} if asked[0] else set()
        holding |= {each.id} if asked[0] and badge_now == HOLDS else set()
    assert {"loads-own", "checks-log", "checks-sure", "checks-cost"} <= on_documents and not holding


def test_findings_on_their_test_cease_where_it_counts_something_else(
    e: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped_counts(path: Any, table: str) -> list[dict[str, Any]]:
        rows = read_rows(path, table)
        return [{**row, "nan": row["counted"], "counted": row["nan"], "ratio": 1.0} for row in rows]

    monkeypatch.setattr(validation, "read_records", swapped_counts)
    on_their_test = ("checks-test", "checks-log", "checks-sure", "checks-baseline", "front-checks")
    assert [each for each in on_their_test if findings.load()[each].on(e).badge == HOLDS] == []


def made_up(gain: float, low: float, high: float) -> Finding:
    def evaluate(e: Any) -> findings.Says:
        if e.slug == "nothing":
            raise NotMeasured("no run")
        gains = Estimates({512: Estimate(gain if e.slug == "home" else e.gain, low, high)}, "×")
        return numbers(gain=gains), checks(faster(gains))

    return Finding("made-up", "On an {card} it is {gain} as fast.", evaluate)


class Card:
    def __init__(self, slug: str, gain: float = 1.0) -> None:
        self.slug, self.gain, self.card = slug, gain, slug.upper()


@pytest.mark.parametrize(
    ("card", "high", "word"),
    [
        (Card("fast", 1.5), 3.0, HOLDS),
        (Card("tie", 1.01), 1.02, DIFFERS),
        (Card("wide", 1.01), 1.2, OPEN),
        (Card("nothing"), 3.0, NOT_MEASURED),
    ],
)
def test_card_differs_where_no_interval_reaches_what_a_sentence_says(card: Card, high: float, word: str) -> None:
    assert made_up(2.0, 0.9, high).on(card).badge == word  # type: ignore[arg-type]


def test_reference_needs_the_intervals_and_keeps_its_sentence(e: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    sure, unsure = made_up(2.0, 1.9, 2.1), made_up(2.0, 0.9, 3.0)
    home: Any = Card("home")
    monkeypatch.setattr(findings, "committed", lambda slug: home)
    monkeypatch.setattr(findings, "load", lambda: {"sure": sure, "unsure": unsure})
    assert sure.home.text == "On an HOME it is 2.00× as fast." and sure.home.numbers == {"gain": "2.00×"}
    assert findings.broken() == [f"made-up does not hold on {REFERENCE}: {unsure.home.text}"]


def test_another_card_s_page_has_the_same_sentence_and_a_badge() -> None:
    here, there = (Evidence.load(DATA / "measured" / slug) for slug in (REFERENCE, "nvidia-h200"))
    ids = ("wave-test", "decode-free")
    own, other = (paragraph(each, *ids) for each in (here, there))
    assert "span" not in own
    for each, word in zip(ids, (HOLDS, DIFFERS)):
        assert f"{findings.load()[each].home.text} {badge(word)}" in other
    with pytest.raises(DataError, match="there is no finding 'nobody'"):
        paragraph(here, "nobody")


def test_windows_are_where_the_blocks_of_one_version_no_longer_fit(e: Evidence) -> None:
    problems, least = study("waves").problems, {512: 10.0, 2048: 30.0}
    at_once = {"rope_separate": 5 * 132, "rope_v7": 6 * 132}
    source = e.study("log")

    def spread(frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of one problem, for each of the study's."""
        mine = frame[frame["version"].isin(at_once) & (frame["problem"] == source.shapes("rope_v7")[512])]
        return pd.concat([mine.assign(problem=[problem] * len(mine)) for problem in problems], ignore_index=True)

    timings = spread(source.timings[source.timings["timer"] == "device_warm"])
    timings["median_us"] = [
        least[row.problem.hdim] * -(-row.problem.heads * 64 // at_once[row.version]) * (1 + row.process / 1e4)
        for row in timings.itertuples()
    ]
    stepped = with_times(e, "waves", lambda _: timings, checks=spread(source.checks))
    heads, won, level = waves.windows(stepped)
    assert (heads, f"{won}", f"{level}") == ("11 to 12 and 21 to 24", "1.50–2.00×", "1.00×")
    assert waves.occupied(e, "rope_separate", "log", (128,))[128].value == pytest.approx(4 * 64 / (5 * 132))
    assert [waves.places(e, name) for name in at_once] == [5 * 48, 6 * 48]


def test_findings_command_fails_for_the_reference_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Finding("wrong", "It is so.", lambda e: (numbers(), Comparison.exact(False)))
    monkeypatch.setattr(findings, "load", lambda: {"wrong": wrong})
    assert findings.main([]) == 1 and findings.main(["--gpu", "nvidia-h200"]) == 0
    said = capsys.readouterr().out
    assert f"wrong does not hold on {REFERENCE}: It is so." in said and f"wrong {DIFFERS}" in said
    with pytest.raises(DataError, match="no-card"):
        findings.main(["--gpu", "no-card"])
