"""Comparisons of cards: two and five made-up ones, what they refuse, and numbers against the CSV they came from."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from scipy import stats

from analysis.book import figures, findings, saving
from analysis.book.compare import carry, command, speedups, tables
from analysis.book.compare.cards import PUBLISHED, Card, about, chosen, source_of
from analysis.book.compare.distance import distances
from analysis.records import files
from analysis.records.files import DataError
from analysis.records.measured import Measured
from analysis.verdicts import claims
from tests.cards import write

ALONE = ("counters", "shapes", "sanitizers", "op", "verdicts")
FIRST, OTHER = "made-up-12-0", "made-up-8-9"
FIVE = (FIRST, OTHER, "made-up-7-5", "made-up-8-0", "made-up-10-0")
WARM, LAUNCHED = speedups.TIMERS["device"], speedups.TIMERS["as-timed"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five made-up cards: 8.0 with checks that ran out of memory, 8.9 with gaps, 10.0 without a study."""
    folder = tmp_path_factory.mktemp("measured")
    for card, studies in (
        ("12.0", ("log", "fp16", "matched")),
        ("8.9", ("log",)),
        ("7.5", ("log",)),
        ("8.0", ("log",)),
    ):
        write(card, folder, studies, ALONE, errors=card == "8.0", gaps=card == "8.9")
    nothing = write("10.0", folder, (), ALONE)
    for table in ("runs", "checks", "timings"):
        (nothing / f"{table}.csv").unlink(missing_ok=True)
    return folder


@pytest.fixture
def five(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "MEASURED", made)
    return made


@pytest.fixture
def copied(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two of them, to be changed."""
    for slug in (FIRST, OTHER):
        shutil.copytree(made / slug, tmp_path / slug)
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    return tmp_path


def rows(folder: Path, table: str) -> Iterator[dict[str, str]]:
    with (folder / f"{table}.csv").open(newline="") as file:
        yield from csv.DictReader(file)


def rewrite(path: Path, changed: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(changed[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(changed)


def at(frame: pd.DataFrame, card: str, version: str, hdim: int, baseline: str = "rope_separate") -> pd.Series:
    (row,) = frame.query("card == @card and version == @version and baseline == @baseline and hdim == @hdim").iloc
    return row


# ---------------------------------------------------------------- which cards


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["published", "abacus"], f"no card is called 'abacus'; known: published, made-up-10-0, {FIRST}, "),
        (["published"], "two or more are compared; given: published; known: published, made-up-10-0"),
        ([FIRST, PUBLISHED, FIRST], f"'{FIRST}' is named 2 times"),
    ],
)
def test_names_that_cannot_be_compared_are_refused(
    five: Path, names: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*names, "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"compare: {says}") and said.err.count("\n") == 1
    assert not said.out and not (tmp_path / "out").exists()


def test_columns_stand_as_named_and_by_default_all_are_there(five: Path) -> None:
    assert [card.slug for card in chosen([OTHER, PUBLISHED, FIRST])] == [OTHER, PUBLISHED, FIRST]
    assert [card.slug for card in chosen(first=OTHER)] == [PUBLISHED, OTHER, *sorted({*FIVE} - {OTHER})]
    with pytest.raises(DataError, match="two or more"):
        chosen([OTHER])


def test_without_a_measured_card_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    with pytest.raises(DataError, match=r"given: published; known: published$"):
        chosen()


def test_two_cards_of_one_name_are_told_apart(copied: Path) -> None:
    for slug in (FIRST, OTHER):
        path = copied / slug / "gpu.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "name": "NVIDIA Twin"}))
    assert [card.label for card in chosen()] == [PUBLISHED, FIRST, OTHER]


# ---------------------------------------------------------------- speedups


def test_speedups_are_those_of_the_csv(five: Path) -> None:
    cards = chosen([FIRST, OTHER])
    compared = 0
    for slug, timer in ((FIRST, WARM), (FIRST, LAUNCHED), (OTHER, WARM)):
        frame = speedups.frame(cards, timer)
        times: dict[tuple[str, str, str], dict[str, float]] = {}
        for row in rows(five / slug, "timings"):
            if row["study"] == "log" and row["timer"] == timer and row["median_us"]:
                key = (row["version"], row["hdim"], row["rotary_dim"])
                times.setdefault(key, {})[row["process"]] = float(row["median_us"])
        for found in frame[(frame["card"] == slug) & (frame["family"] != "fp16")].to_dict("records"):
            shape = (str(found["hdim"]), str(found["rotary_dim"]))
            ours, theirs = times.get((found["version"], *shape)), times.get((found["baseline"], *shape))
            if not (ours and theirs):
                assert math.isnan(found["speedup"]) and found["status"] not in ("ok", "wrong")
                continue
            logs = [math.log(theirs[process] / ours[process]) for process in ours]
            half = stats.t.ppf(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
            expected = [math.exp(mean(logs)), math.exp(mean(logs) - half), math.exp(mean(logs) + half)]
            assert [found["speedup"], found["low"], found["high"]] == pytest.approx(expected, rel=1e-9)
            compared += 1
    assert compared > 150


def test_what_is_published_is_that_of_the_documents(five: Path) -> None:
    frame = speedups.frame(chosen([PUBLISHED, FIRST]), WARM)
    said = at(frame, PUBLISHED, "rope_v7", 2048)
    assert (said["speedup"], said["gpu"], said["timer"]) == (1.40, "RTX 4000 Ada", "published")
    assert at(frame, PUBLISHED, "rope_v1c", 2048)["speedup"] == pytest.approx(1 / 3.27)
    assert at(frame, PUBLISHED, "fp16_phase4", 64, "fp16_minimal")["gpu"] == "NVIDIA L4"
    assert at(frame, PUBLISHED, "rope_v6a", 2048, "rope_v5")["speedup"] == 3.3
    assert not frame.duplicated(["version", "baseline", "family", "hdim", "rotary_dim", "card"]).any()


@pytest.fixture(scope="module")
def changed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Card], pd.DataFrame, pd.DataFrame]:
    """What is published and two cards, with their speedups by both timers.

    On the first card V7 is refused at one head dim, fails at the next and is not measured at the third, V6b was of
    other code, and timing V1c as the authors did fails at one head dim, where its check is right.
    """
    folder = tmp_path_factory.mktemp("changed")
    for slug in (FIRST, OTHER):
        shutil.copytree(made / slug, folder / slug)
    words = {"512": "unsupported", "2048": "error", "4096": ""}
    for table in ("checks", "timings"):
        kept = []
        for row in rows(folder / FIRST, table):
            word = words.get(row["hdim"]) if row["version"] == "rope_v7" else None
            if row["version"] == "rope_v1c" and row["hdim"] == "128" and row.get("timer") == LAUNCHED:
                word = "error"
            if word:
                row |= {"status": word, "reason": f"made up {word}"} | ({"median_us": ""} if table == "timings" else {})
            if row["version"] == "rope_v6b":
                row["source_hash"] = "0123456789abcdef"
            if word != "":
                kept.append(row)
        rewrite(folder / FIRST / f"{table}.csv", kept)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "MEASURED", folder)
        cards = chosen([PUBLISHED, FIRST, OTHER])
        return cards, speedups.frame(cards, WARM), speedups.frame(cards, LAUNCHED)


def test_unsupported_failed_and_not_measured_are_told_apart(changed: tuple) -> None:
    _, frame, _ = changed
    found = {hdim: at(frame, FIRST, "rope_v7", hdim) for hdim in (128, 512, 2048, 4096)}
    assert [row["status"] for row in found.values()] == ["ok", "unsupported", "failed", "not measured"]
    assert found[512]["reason"] == "rope_v7: made up unsupported" and math.isnan(found[512]["speedup"])
    shown = command.as_text(tables.speedups(frame, compact=True)).splitlines()
    start = next(place for place, line in enumerate(shown) if line.startswith("rope_v7 over rope_separate"))
    for word, line in zip(("unsupported", "failed", "not measured"), shown[start + 1 :]):
        assert word in line


def test_a_time_that_failed_after_a_right_check_is_failed(changed: tuple) -> None:
    _, warm, launched = changed
    assert at(warm, FIRST, "rope_v1c", 128)["status"] == "ok"
    failed = at(launched, FIRST, "rope_v1c", 128)
    assert (failed["status"], failed["reason"]) == ("failed", "rope_v1c: made up error")
    assert at(launched, OTHER, "rope_v1c", 128)["status"] == "ok"


def test_rows_of_other_code_are_marked(changed: tuple) -> None:
    (_, first, other), frame, _ = changed
    assert {*frame.loc[frame["stale"] == 1, "version"]} == {"rope_v6b"}
    assert {*frame.loc[frame["stale"] == 1, "card"]} == {FIRST}
    assert first.stale == ["rope_v6b"] and other.stale == []
    header = tables.speedups(frame).plain().header
    assert [name.endswith(" stale") for name in header] == [False, False, False, True, False]
    assert about(first)["rows of other code"].startswith("1 of ") and about(other)["rows of other code"] == "none"


def test_a_card_without_a_study_has_a_column_of_not_measured(five: Path) -> None:
    frame = speedups.frame(chosen([FIRST, "made-up-10-0"]), WARM)
    column = frame[frame["card"] == "made-up-10-0"]
    assert {*column["status"]} == {"not measured"} and column["speedup"].isna().all() and not column["stale"].any()
    assert about(chosen([FIRST, "made-up-10-0"])[1])["driver"] == ""


# ---------------------------------------------------------------- claims and findings


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["holds", "holds"], carry.SAME),
        (["undecided"] * 2, carry.SAME),
        (["holds", "refuted", "holds"], carry.DIFFERS),
        (["holds", "undecided", "refuted"], carry.DIFFERS),
        (["holds", "not tested"], carry.OPEN),
    ],
)
def test_what_cards_agree_on(verdicts: list[str], expected: str) -> None:
    assert carry.carries(verdicts) == expected


def test_swapping_two_versions_changes_what_carries_over(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = [claim for claim in claims.load() if all(test.measure.startswith("speed(") for test in claim.tests)]
    monkeypatch.setattr(claims, "load", lambda: timed)
    shutil.rmtree(copied / OTHER)
    shutil.copytree(copied / FIRST, copied / OTHER)
    before = carry.verdicts(chosen())
    assert carry.counts(before)[carry.DIFFERS] == 0 and not tables.claims_that_differ(before).rows
    swap = {"rope_v7": "rope_separate", "rope_separate": "rope_v7"}
    times: dict[tuple[str, ...], dict[str, str]] = {}
    changed = list(rows(copied / OTHER, "timings"))
    key = ("process", "study", "hdim", "rotary_dim", "timer")
    for row in changed:
        if row["version"] in swap and row["median_us"]:
            times[(row["version"], *(row[name] for name in key))] = dict(row)
    for row in changed:
        other = times.get((swap.get(row["version"], ""), *(row[name] for name in key)))
        if other and row["median_us"]:
            row["median_us"] = other["median_us"]
    rewrite(copied / OTHER / "timings.csv", changed)
    cards = chosen()
    frame = speedups.frame(cards, WARM)
    for hdim in (128, 512, 2048):
        ours, theirs = (at(frame, slug, "rope_v7", hdim)["speedup"] for slug in (FIRST, OTHER))
        assert ours == pytest.approx(1 / theirs)
    after = carry.verdicts(cards)
    counted = carry.counts(after)
    assert counted[carry.DIFFERS] > 0 and sum(counted.values()) == after["claim_id"].nunique()
    differ = tables.claims_that_differ(after)
    assert len(differ.rows) == counted[carry.DIFFERS]
    for claim, _, first, second in differ.plain().rows:
        given = after[after["claim_id"] == claim].set_index("card")["verdict"]
        assert (first, second) == (given[FIRST], given[OTHER]) and first != second


def test_one_measured_card_has_verdicts_and_nothing_to_agree_with(five: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [{"claim_id": claim.id, "verdict": "holds"} for claim in claims.load()[1:]]
    monkeypatch.setattr(claims, "verdicts_of", lambda slug: given)
    frame = carry.verdicts(chosen([PUBLISHED, FIRST]))
    assert carry.counts(frame) == {} and {*frame["card"]} == {FIRST}
    assert [int(row[1]) for row in tables.verdict_counts(frame).rows] == [len(given), 1]


# ---------------------------------------------------------------- all of it


PARAMETERS = "gpu, source = 'nvidia-h200', 'recorded'"
FINDING = """from analysis.book.findings import finding, speedups
from analysis.book.notebook import load
v7 = speedups(load(gpu), "rope_v7", "rope_separate")
if True:
    print("shown on no page but its own")
    finding("slower", "V7 runs at {v7} the **speed**.", holds=v7.slower, v7=v7)
"""


@pytest.mark.deep
def test_five_cards_and_what_is_published(
    five: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat.write(new_notebook(cells=[new_code_cell(PARAMETERS), new_code_cell(FINDING)]), tmp_path / "chapter.ipynb")
    monkeypatch.setattr(findings, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(claims, "load", lambda load=claims.load: load()[:3])
    out = tmp_path / "out"
    assert command.main([PUBLISHED, *FIVE, "--timer", "as-timed", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert LAUNCHED in printed and all(f"Made-up {name}" in printed for name in ("12.0", "8.9", "7.5", "8.0", "10.0"))
    assert "shown on no page" not in printed
    read = {path.stem: pd.read_csv(path, keep_default_na=False) for path in out.iterdir()}
    assert {*read} == {"cards", "speedups", "claims", "findings"}
    assert list(read["cards"]["card"]) == list(read["speedups"]["card"].unique()) == [PUBLISHED, *FIVE]
    assert {*read["speedups"]["status"]} >= {"published", "ok", "wrong", "failed", "not measured"}
    assert len(read["claims"]) == 3 * len(FIVE)
    found = read["findings"].set_index("card")
    assert list(found.index) == list(FIVE) and {*found["chapter"]} == {"chapter"}
    assert {*found["outcome"]} == {"differs", "not measured"} and found["outcome"]["made-up-10-0"] == "not measured"
    (sentence,) = {*found["reference"]}
    with monkeypatch.context() as patched:
        patched.setattr(files, "MEASURED", files.DATA / "measured")
        v7 = findings.speedups(Measured.load(files.REFERENCE), "rope_v7", "rope_separate")
    assert sentence == f"V7 runs at {v7} the **speed**." and "the speed." in printed
    assert found["text"][FIRST].startswith("**Differs from the reference** (slower): v7 ")


def test_the_figure_has_a_dot_or_a_word_for_each_of_five_cards(five: Path) -> None:
    cards = chosen([PUBLISHED, *FIVE])
    frame = speedups.frame(cards, WARM)
    plot = figures.speedups_by_card(frame, source_of(cards))
    assert list(plot.data["card"].unique()) == [PUBLISHED, *FIVE] and "Made-up 8.9" in str(plot.source)
    told, names = 0, []
    for axis in plot.figure.axes:
        told += len({str(line.get_ydata()) for line in axis.lines if line.get_marker() != "None"})
        told += len([text for text in axis.texts if text.get_text() in ("not measured", "failed", "unsupported")])
        names += [text.get_text() for text in axis.get_yticklabels()]
    assert told == len(names) == len(plot.data) and names[:6] == [card.label for card in cards]


def test_the_figure_is_saved_as_the_same_bytes(changed: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards, frame, _ = changed
    monkeypatch.setattr(saving, "FORMATS", ("svg",))
    for where in ("a", "b"):
        saving.save(figures.speedups_by_card(frame, source_of(cards)), tmp_path / where)
    for suffix in ("svg", "csv"):
        one, two = (tmp_path / where / f"speedups-by-card.{suffix}" for where in ("a", "b"))
        assert one.read_bytes() == two.read_bytes()


def test_a_figure_of_two_cards_without_a_number_is_drawn() -> None:
    nothing = [Card("a", "A", {"name": "A"}), Card("b", "B", {"name": "B"})]
    plot = figures.speedups_by_card(speedups.frame(nothing, WARM), source_of(nothing))
    words = [text.get_text() for axis in plot.figure.axes for text in axis.texts]
    assert words.count("not measured") == len(plot.data)


# ---------------------------------------------------------------- how far from what is published


def test_a_distance_is_the_factor_between_published_and_measured_under_each_condition(five: Path) -> None:
    studies = {name: Measured.load(FIRST, name) for name in ("log", "fp16", "matched")}
    found = distances(studies, sms=158)
    told = found.query("version == 'rope_v7' and baseline == 'rope_separate' and hdim == 2048")
    told = told[told["rotary_dim"] == 128].set_index("condition")
    asked = {
        "as timed": ("log", "launched", "4"), "device": ("log", "device_warm", "4"),
        "matched": ("matched", "device_warm", "13"), "matched launched": ("matched", "launched", "13"),
    }  # fmt: skip
    times: dict[tuple[str, ...], list[float]] = {}
    for row in rows(five / FIRST, "timings"):
        if (row["hdim"], row["rotary_dim"]) == ("2048", "128") and row["median_us"]:
            key = (row["study"], row["timer"], row["heads"], row["version"])
            times.setdefault(key, []).append(math.log(float(row["median_us"])))
    for condition, key in asked.items():
        ratio = math.exp(mean(times[*key, "rope_separate"]) - mean(times[*key, "rope_v7"]))
        published = told.loc[condition, "published"]
        assert told.loc[condition, "factor"] == pytest.approx(max(ratio / published, published / ratio))
    assert (found["factor"].dropna() >= 1).all() and found["factor"].notna().groupby(found["condition"]).any().all()


def test_without_a_matched_study_its_distances_are_not_measured(five: Path) -> None:
    found = distances({"log": Measured.load(FIRST), "fp16": None, "matched": None}, sms=158)
    by_condition = found.groupby("condition")
    assert set(by_condition.get_group("matched")["status"]) == {"not measured"}
    assert by_condition["factor"].count()[["matched", "matched launched"]].sum() == 0
    assert (by_condition["factor"].count()[["as timed", "device"]] > 0).all()
    assert by_condition.size().nunique() == 1, "a condition lacks rows"
