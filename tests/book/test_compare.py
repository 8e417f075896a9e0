"""Comparisons of cards: what is published and two made-up ones, what they refuse, and numbers against their rows."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pandas as pd
import pytest
from scipy import stats

from analysis import figures, findings
from analysis.book import compare
from analysis.book.compare import PUBLISHED, chosen, source_of, speedups
from analysis.claims import judge
from analysis.evidence import Comparison, Evidence
from analysis.findings import DIFFERS, HOLDS, Finding, numbers
from analysis.record import files
from tests.cards import REFUSED, write

FIRST, OTHER = "made-up-12-0", "made-up-8-9"
WARM, LAUNCHED = compare.TIMERS["device"], compare.TIMERS["as-timed"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two cards, the second without the study of the load."""
    folder = tmp_path_factory.mktemp("measured")
    write("12.0", folder, ("log", "fp16", "matched"))
    write("8.9", folder, ("log", "fp16"))
    return folder


@pytest.fixture(autouse=True)
def measured(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MEASURED", two)


def at(frame: pd.DataFrame, card: str, version: str, hdim: int, baseline: str = "rope_separate") -> pd.Series:
    (row,) = frame.query("card == @card and version == @version and baseline == @baseline and hdim == @hdim").iloc
    return row


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["published", "abacus"], f"no card is called 'abacus'; known: published, {FIRST}, "),
        (["published"], f"two or more are compared; given: published; known: published, {FIRST}"),
        ([FIRST, PUBLISHED, FIRST], f"'{FIRST}' is named 2 times"),
    ],
)
def test_names_that_cannot_be_compared_are_refused(
    names: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([*names, "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"compare: {says}") and said.err.count("\n") == 1


@pytest.mark.parametrize(("timer", "slug"), [(LAUNCHED, FIRST), (WARM, OTHER)])
def test_speedups_are_those_of_the_rows_of_a_card(timer: str, slug: str) -> None:
    """Within one run, as a made-up card has no other: a t interval of the logarithms over the processes."""
    rows = Evidence.load(slug).study("log").timings.query("timer == @timer and median_us.notna()")
    times = {key: mine.set_index("process")["median_us"] for key, mine in rows.groupby(["version", "problem"])}
    frame = speedups(chosen([PUBLISHED, slug]), timer).query("card == @slug and family != 'fp16'")
    seen, compared = set(frame["status"]), 0
    for found in frame.to_dict("records"):
        problem = files.problem_of(found)
        ours, theirs = times.get((found["version"], problem)), times.get((found["baseline"], problem))
        if ours is None or theirs is None:
            assert math.isnan(found["speedup"]) and found["status"] not in ("ok", "wrong")
            continue
        logs = [math.log(each) for each in theirs / ours]
        half = stats.t.ppf(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
        expected = [math.exp(mean(logs)), math.exp(mean(logs) - half), math.exp(mean(logs) + half)]
        assert [found["speedup"], found["low"], found["high"]] == pytest.approx(expected, rel=1e-4)
        compared += 1
    assert compared > 40 and seen >= {"ok", "wrong", "unsupported", "not measured"}
    assert slug != FIRST or "failed" in seen  # nothing that is compared is drawn to fail on the other card
    assert "rope_v2" in REFUSED and at(frame, slug, "rope_v2", 2048)["reason"].startswith("rope_v2: the card is made")


def test_what_is_published_is_that_of_the_documents() -> None:
    frame = speedups(chosen([PUBLISHED, FIRST]), WARM)
    said = at(frame, PUBLISHED, "rope_v7", 2048)
    assert (said["speedup"], said["gpu"], said["timer"]) == (1.40, "RTX 4000 Ada", "published")
    assert at(frame, PUBLISHED, "rope_v1c", 2048)["speedup"] == pytest.approx(1 / 3.27)
    assert at(frame, PUBLISHED, "fp16_phase4", 64, "fp16_minimal")["gpu"] == "NVIDIA L4"
    assert not frame.duplicated(["version", "baseline", "family", "hdim", "rotary_dim", "card"]).any()


def test_rows_of_other_code_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    from analysis.evidence import Study

    monkeypatch.setattr(Study, "stale", lambda self, version, problem: version == "rope_v6b" and self.slug == FIRST)
    frame = speedups(chosen([FIRST, OTHER]), WARM)
    stale = frame[frame["stale"] == 1]
    assert {*stale["version"]} == {"rope_v6b"} and {*stale["card"]} == {FIRST}
    header = compare.speedup_table(frame).plain().header
    assert [title.endswith("stale") for title in header[2:]] == [True, False]


def made_up(name: str, held: bool) -> Finding:
    def evaluate(e: Any) -> findings.Says:
        return numbers(gain=1.5), Comparison(held, held)

    return Finding(name, "It is {gain:.2f} times as fast.", evaluate)


def test_all_that_is_compared_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: made_up(name, held) for name, held in (("so", True), ("not-so", False))}
    monkeypatch.setattr(findings, "load", lambda: known)
    claims = judge.claims()[:3]
    given = {FIRST: ["holds", "holds", "undecided"], OTHER: ["holds", "refuted", "undecided"]}
    monkeypatch.setattr(judge, "claims", lambda: claims)
    monkeypatch.setattr(
        judge, "verdicts_of", lambda slug: [{"claim_id": c.id, "verdict": v} for c, v in zip(claims, given[slug])]
    )
    assert compare.main([PUBLISHED, FIRST, OTHER, "--timer", "as-timed", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert LAUNCHED in printed and "Made-up 12.0" in printed and "gain 1.50" in printed
    read = {path.stem: pd.read_csv(path, keep_default_na=False) for path in tmp_path.glob("*.csv")}
    assert {*read} == {"speedups", "claims", "findings"}
    assert list(read["speedups"]["card"].unique()) == [PUBLISHED, FIRST, OTHER]
    assert list(read["findings"]["badge"]) == [HOLDS, HOLDS, DIFFERS, DIFFERS]
    assert [row[0] for row in compare.differing(compare.verdicts(chosen())).plain().rows] == [claims[1].id]


def test_the_figure_has_a_dot_or_a_word_for_each_card() -> None:
    cards = chosen([PUBLISHED, FIRST, OTHER])
    plot = figures.speedups_by_card(speedups(cards, WARM), source_of(cards))
    told = 0
    for axis in plot.figure.axes:
        told += len({str(line.get_ydata()) for line in axis.lines if line.get_marker() != "None"})
        told += len([text for text in axis.texts if text.get_text() in ("not measured", "failed", "unsupported")])
    assert told == len(plot.data) and list(plot.data["card"].unique()) == [card.slug for card in cards]
