"""Comparisons of cards: two made-up ones, what is refused, and what counts as meaning something else."""

import math
from pathlib import Path
from statistics import mean, stdev

import pandas as pd
import pytest
from scipy import stats

from analysis import findings
from analysis.book import compare
from analysis.book.compare import chosen, speedups
from analysis.claims import judge
from analysis.evidence import Comparison, Estimate, Evidence
from analysis.findings import DIFFERS, HOLDS, Finding, numbers
from analysis.record import files
from tests.cards import REFUSED, write

FIRST, OTHER = "made-up-12-0", "made-up-8-9"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two cards, the second without slices."""
    folder = tmp_path_factory.mktemp("measured")
    write("12.0", folder, ("log", "fp16", "slices"))
    write("8.9", folder, ("log", "fp16"))
    return folder


@pytest.fixture(autouse=True)
def measured(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MEASURED", two)


def test_speedups_are_those_of_the_rows_of_a_card() -> None:
    """Within one run, as a made-up card has no other: a t interval of the logarithms over the processes."""
    e = Evidence.load(FIRST)
    rows = e.study("log").timings.query("timer == 'device_warm' and median_us.notna()")
    times = {key: mine.set_index("process")["median_us"] for key, mine in rows.groupby(["version", "problem"])}
    frame = speedups([e])
    assert set(frame["load"]) == {"their shapes", "their SMs"} and not REFUSED.keys() & set(frame["version"])
    for found in frame.query("load == 'their shapes' and version.str.startswith('rope')").itertuples():
        problem = e.study("log").shapes(found.version)[found.hdim]
        logs = [math.log(each) for each in times[found.baseline, problem] / times[found.version, problem]]
        half = stats.t.ppf(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
        expected = [math.exp(mean(logs)), math.exp(mean(logs) - half), math.exp(mean(logs) + half)]
        assert [found.speedup, found.low, found.high] == pytest.approx(expected, rel=1e-4)
    assert len(frame) > 100 and not frame.duplicated(["version", "baseline", "load", "hdim", "card"]).any()


@pytest.mark.parametrize(
    ("low", "high", "side"),
    [(1.01, 2.0, 1), (0.5, 0.9, -1), (1.01, 1.04, 0), (0.98, 1.2, 0), (0.8, 1.1, 0)],
)
def test_tie_is_within_3_percent_or_has_an_interval_that_reaches_1(low: float, high: float, side: int) -> None:
    assert Estimate((low + high) / 2, low, high).side == side


def test_only_intervals_apart_that_mean_something_else_are_listed() -> None:
    def row(hdim: int, card: str, low: float, high: float) -> dict[str, object]:
        gain = Estimate((low + high) / 2, low, high)
        pair = {"version": "rope_v7", "baseline": "rope_separate", "load": "their SMs", "hdim": hdim, "card": card}
        return {**pair, "speedup": gain.value, "low": low, "high": high, "side": compare.SIDES[gain.side]}

    pairs = {  # wins and loses, wins less, wins or ties, ties or wins with intervals that meet
        128: ((1.3, 1.4), (0.7, 0.8)), 512: ((1.3, 1.4), (1.1, 1.2)), 2048: ((1.3, 1.4), (0.9, 1.35)),
        4096: ((0.99, 1.02), (1.02, 1.2)),
    }  # fmt: skip
    frame = pd.DataFrame(row(d, c, *ends) for d, both in pairs.items() for c, ends in zip((FIRST, OTHER), both))
    table = compare.speedup_table(frame, chosen()).plain()
    assert [cells[1] for cells in table.rows] == ["128"] and "1 of 4 speedups" in table.caption


def test_claim_that_falls_on_one_card_alone_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = judge.claims()[:4]
    given = {OTHER: ["holds", "holds", "undecided", "holds"], FIRST: ["exact", "refuted", "refuted", "in part"]}
    monkeypatch.setattr(judge, "claims", lambda: claims)
    monkeypatch.setattr(judge, "recorded", lambda of: {c.id: [{"verdict": v}] for c, v in zip(claims, given[of.slug])})
    changed = compare.verdict_table(compare.verdicts(chosen()), chosen()).plain().rows
    assert [row[0] for row in changed] == [claims[1].id, claims[3].id]  # neither the wording nor what is open


def test_finding_that_a_card_contradicts_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        name: Finding(name, "It is {gain:.2f} times.", lambda e, held=held: (numbers(gain=1.5), Comparison.exact(held)))
        for name, held in (("so", True), ("not-so", False))
    }
    monkeypatch.setattr(findings, "load", lambda: known)
    rows = compare.finding_rows(chosen())
    assert list(rows["badge"]) == [HOLDS, HOLDS, DIFFERS, DIFFERS]
    assert len(compare.finding_table(rows, chosen()).rows) == 1
