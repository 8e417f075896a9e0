"""Comparisons of cards: what is published and two made-up ones, what they refuse, and numbers against their CSV."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import pandas as pd
import pytest
from analysis.book.compare.cards import PUBLISHED, Card, chosen, source_of
from analysis.book.compare.distance import distances
from scipy import stats

from analysis import figures
from analysis.book import findings
from analysis.book.compare import carry, command, speedups, tables
from analysis.book.compare.cards import PUBLISHED, Card, chosen, source_of
from analysis.book.compare.distance import distances
from analysis.claims import judge
from analysis.record import records
from analysis.records import files
from analysis.records.files import DataError, read_table, write_table
from analysis.records.measured import Measured
from tests.cards import REFUSED, write

FIRST, OTHER = "made-up-12-0", "made-up-8-9"
WARM, LAUNCHED = speedups.TIMERS["device"], speedups.TIMERS["as-timed"]


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
    assert command.main([*names, "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"compare: {says}") and said.err.count("\n") == 1
    assert not said.out and not (tmp_path / "out").exists()


def test_columns_stand_as_named_and_by_default_all_are_there() -> None:
    assert [card.slug for card in chosen([OTHER, PUBLISHED, FIRST])] == [OTHER, PUBLISHED, FIRST]
    assert [card.slug for card in chosen(first=OTHER)] == [PUBLISHED, OTHER, FIRST]
    with pytest.raises(DataError, match="two or more"):
        chosen([OTHER])


def test_speedups_are_those_of_the_csv_and_what_has_none_is_told_apart(two: Path) -> None:
    cards = chosen([FIRST, OTHER])
    compared, seen = 0, set()
    for slug, timer in ((FIRST, WARM), (FIRST, LAUNCHED), (OTHER, WARM)):
        times: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
        for row in records(two / slug, "timings"):
            if row["study"] == "log" and row["timer"] == timer:
                times[row["version"], str(row["hdim"]), str(row["rotary_dim"])][row["process"]] = row["median_us"]
        frame = speedups.frame(cards, timer)
        for found in frame[(frame["card"] == slug) & (frame["family"] != "fp16")].to_dict("records"):
            shape = (str(found["hdim"]), str(found["rotary_dim"]))
            ours, theirs = times.get((found["version"], *shape)), times.get((found["baseline"], *shape))
            seen.add(found["status"])
            if not (ours and theirs):
                assert math.isnan(found["speedup"]) and found["status"] not in ("ok", "wrong")
                continue
            logs = [math.log(theirs[process] / ours[process]) for process in ours]
            half = stats.t.ppf(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
            expected = [math.exp(mean(logs)), math.exp(mean(logs) - half), math.exp(mean(logs) + half)]
            assert [found["speedup"], found["low"], found["high"]] == pytest.approx(expected, rel=1e-4)
            compared += 1
    assert compared > 100 and seen >= {"ok", "wrong", "unsupported", "failed", "not measured"}
    assert "rope_v2" in REFUSED and at(frame, OTHER, "rope_v2", 2048)["reason"].startswith("rope_v2: the card is made")


def test_what_is_published_is_that_of_the_documents() -> None:
    frame = speedups.frame(chosen([PUBLISHED, FIRST]), WARM)
    said = at(frame, PUBLISHED, "rope_v7", 2048)
    assert (said["speedup"], said["gpu"], said["timer"]) == (1.40, "RTX 4000 Ada", "published")
    assert at(frame, PUBLISHED, "rope_v1c", 2048)["speedup"] == pytest.approx(1 / 3.27)
    assert at(frame, PUBLISHED, "fp16_phase4", 64, "fp16_minimal")["gpu"] == "NVIDIA L4"
    assert not frame.duplicated(["version", "baseline", "family", "hdim", "rotary_dim", "card"]).any()


def test_rows_of_other_code_are_marked(two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("12.0", "8.9"):
        write(name, tmp_path, ("log",))
    for table in ("checks", "timings"):
        frame = read_table(tmp_path / FIRST / f"{table}.csv", table)
        frame.loc[frame["version"] == "rope_v6b", "source_hash"] = "0123456789abcdef"
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        write_table(tmp_path / FIRST / f"{table}.csv", table, rows)
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    cards = chosen([FIRST, OTHER])
    frame = speedups.frame(cards, WARM)
    stale = frame[frame["stale"] == 1]
    assert {*stale["version"]} == {"rope_v6b"} and {*stale["card"]} == {FIRST}
    assert [card.stale for card in cards] == [["rope_v6b"], []]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["holds", "holds"], carry.SAME),
        (["undecided"] * 2, carry.SAME),
        (["holds", "undecided", "refuted"], carry.DIFFERS),
        (["holds", "not tested"], carry.OPEN),
    ],
)
def test_what_cards_agree_on(verdicts: list[str], expected: str) -> None:
    assert carry.carries(verdicts) == expected


def test_all_that_is_compared_is_written_and_claims_that_differ_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "NOTEBOOKS", tmp_path)  # without chapters
    given = {FIRST: ["holds", "holds", "undecided"], OTHER: ["holds", "refuted", "holds"]}
    monkeypatch.setattr(judge, "claims", lambda claims=judge.claims: claims()[:3])
    monkeypatch.setattr(
        judge,
        "verdicts_of",
        lambda slug: [{"claim_id": c.id, "verdict": v} for c, v in zip(judge.claims(), given[slug])],
    )
    out = tmp_path / "out"
    assert command.main([PUBLISHED, FIRST, OTHER, "--timer", "as-timed", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert LAUNCHED in printed and "Made-up 12.0" in printed and "Made-up 8.9" in printed
    read = {path.stem: pd.read_csv(path, keep_default_na=False) for path in out.glob("*.csv")}
    assert {*read} == {"cards", "speedups", "claims", "findings"}
    assert list(read["cards"]["card"]) == list(read["speedups"]["card"].unique()) == [PUBLISHED, FIRST, OTHER]
    verdicts = carry.verdicts(chosen())
    assert carry.counts(verdicts) == {carry.SAME: 1, carry.DIFFERS: 1, carry.OPEN: 1}
    assert [row[0] for row in tables.claims_that_differ(verdicts).plain().rows] == [judge.claims()[1].id]


def test_the_figure_has_a_dot_or_a_word_for_each_card() -> None:
    nothing = Card("none", "None", {"name": "None"})
    cards = [*chosen([PUBLISHED, FIRST, OTHER]), nothing]
    plot = figures.speedups_by_card(speedups.frame(cards, WARM), source_of(cards))
    told = 0
    for axis in plot.figure.axes:
        told += len({str(line.get_ydata()) for line in axis.lines if line.get_marker() != "None"})
        told += len([text for text in axis.texts if text.get_text() in ("not measured", "failed", "unsupported")])
    assert told == len(plot.data) and list(plot.data["card"].unique()) == [card.slug for card in cards]


def test_a_distance_is_the_factor_between_published_and_measured_under_each_condition(two: Path) -> None:
    studies = {name: Measured.load(FIRST, name) for name in ("log", "fp16", "matched")}
    found = distances(studies, sms=132)
    told = found.query("version == 'rope_v7' and baseline == 'rope_separate' and hdim == 2048 and rotary_dim == 128")
    for row in told.to_dict("records"):
        ratio = row["measured"]
        assert row["factor"] == pytest.approx(max(ratio / row["published"], row["published"] / ratio))
    assert (found["factor"].dropna() >= 1).all() and found["factor"].notna().groupby(found["condition"]).any().all()
    without = distances({**studies, "matched": None}, sms=132).groupby("condition")
    assert set(without.get_group("matched")["status"]) == {"not measured"}
    assert without.size().nunique() == 1, "a condition lacks rows"
