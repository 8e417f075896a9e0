"""Claims and their verdicts: how a verdict comes about, and that it follows the data."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import __main__ as command_line
from analysis import record
from analysis.claims import judge, rule
from analysis.claims.claim import CLAIMS, Claim, Test, effect, headline, speed
from analysis.claims.rule import HOLDS, REPRODUCED, UNDECIDED, decide
from analysis.evidence import Estimate, Estimates, Evidence, load, said
from analysis.evidence.current import today
from analysis.record.columns import SCHEMAS
from analysis.record.files import DATA, MEASURED, REFERENCE, known_gpus, problem_columns, read_table, write_table
from analysis.record.published import by_id
from analysis.studies import DEVICE, THEIR_SMS, matched
from kernels import VERSIONS
from tests.evidence.made_up import CEILINGS, PROBLEM, add_run
from tests.rows import add_rows, replace_rows

Test.__test__ = False  # type: ignore[attr-defined]  # not a test of pytest
V7 = ("rope_v7", "rope_separate")


# ---------------------------------------------------------------- rules


INF = float("inf")


@pytest.mark.parametrize(
    ("kind", "rule", "bounds", "interval", "outcome"),
    [
        ("number", "published", [1.4], (1.41, 1.49), "reproduced"),  # within 10 % of it
        ("number", "published", [1.4], (1.10, 1.20), "same direction"),
        ("number", "published", [1.4], (0.98, 1.02), "no difference"),
        ("number", "published", [1.4], (0.80, 0.90), "opposite"),
        ("number", "published", [1.4], (0.90, 1.20), "undecided"),
        ("number", "published", [1.4], (1.01, 1.20), "undecided"),  # a tie, or the same side
        ("number", "published", [0.6], (0.62, 0.65), "reproduced"),
        ("number", "published", [0.6], (1.00, 1.10), "no difference"),
        ("number", "published", [1.05], (1.00, 1.02), "no difference"),  # within 10 %, but a tie
        ("number", "published", [1.0], (0.95, 1.05), "reproduced"),
        ("number", "published", [1.0], (1.12, 1.20), "a difference"),
        ("number", "published", [1.1, 1.45], (1.05, 1.50), "reproduced"),  # a range, 10 % around it
        ("number", "published", [1.1, 1.45], (1.70, 1.80), "same direction"),
        ("number", "direction", [INF], (1.04, 9.0), "same direction"),
        ("number", "direction", [INF], (0.99, 1.02), "no difference"),
        ("number", "direction", [0.0], (1.04, 9.0), "opposite"),
        ("number", "direction", [0.0], (0.9, 1.0), "undecided"),
        ("universal", "least", [1.03], (1.03, 1.05), "holds"),
        ("universal", "least", [1.03], (0.99, 1.02), "refuted"),
        ("universal", "least", [1.03], (1.00, 1.05), "undecided"),
        ("universal", "most", [0.5], (0.1, 0.4), "holds"),
        ("universal", "between", [0.9, 1.1], (1.05, 1.15), "undecided"),
        ("universal", "between", [0.9, 1.1], (1.15, 1.25), "refuted"),
        ("count", "equals", [4160], (4160, 4160), "exact"),
        ("count", "equals", [4160], (4161, 4161), "wrong"),
        ("universal", "least", [1.03], (float("nan"), float("nan")), "undecided"),
        ("cause", "least", [0.5], (0.5, 0.9), "supported"),
        ("cause", "least", [0.5], (0.02, 0.4), "not supported"),
        ("cause", "least", [0.5], (-1.0, 0.02), "refuted"),  # it closes nothing
        ("cause", "least", [2], (1, 1), "refuted"),  # an exact count
    ],
)
def test_outcome_follows_from_an_interval(kind: str, rule: str, bounds: list, interval: tuple, outcome: str) -> None:
    assert decide(kind, rule, bounds, Estimate(sum(interval) / 2, *interval), unit="of the gap") == outcome


def test_printed_number_is_met_by_what_rounds_to_it() -> None:
    assert decide("count", "equals", [16.8e6], Estimate(*(16_777_216.0,) * 3), digits=3) == "exact"
    assert decide("count", "equals", [16.8e6], Estimate(*(16_777_216.0,) * 3)) == "wrong"
    assert decide("count", "equals", [0.47], Estimate(*(0.4651,) * 3), digits=2) == "exact"


R, S, N, P, A, U = "reproduced", "same direction", "no difference", "opposite", "a difference", "undecided"


@pytest.mark.parametrize(
    ("kind", "places", "verdict"),
    [
        ("number", [R, R, S], R),
        ("number", [R, S, S], S),
        ("number", [R, S, P], S),
        ("number", [S, P, P], P),
        ("number", [A, A, P, P], P),
        ("number", [N, P, R], N),
        ("number", [R, R, P, P], "in part"),
        ("number", [R, U, U], U),  # most are open
        ("number", [R, R, U], R),
        ("universal", ["holds", "holds"], "holds"),
        ("universal", ["holds", "refuted", U], "refuted"),
        ("universal", ["holds", U], U),
        ("count", ["exact", "wrong"], "wrong"),
        ("cause", ["supported", "supported", "refuted"], "supported"),
        ("cause", ["supported", "refuted", "not supported"], "not supported"),
        ("cause", ["refuted", "refuted", "not supported"], "refuted"),
    ],
)
def test_verdict_follows_from_the_places_of_the_headline(kind: str, places: list[str], verdict: str) -> None:
    assert rule.verdict(kind, places) == verdict


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ([S], S),
        ([R, S], S),
        ([N, P], N),
        ([S, P], "depends on the timer"),
        ([U, P], P),
        ([], U),
    ],
)
def test_conditions_that_disagree_are_the_verdict(given: list[str], verdict: str) -> None:
    assert rule.across(given) == verdict


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        (["holds", "refuted"], "in part"),
        (["holds", "exact"], "holds"),
        (["supported", S], S),
        (["wrong", "refuted"], "refuted"),
        (["holds", U], U),
        (["wrong"], "wrong"),
    ],
)
def test_parts_that_disagree_are_in_part(parts: list[str], verdict: str) -> None:
    assert rule.together(parts) == verdict


def test_cause_needs_an_effect() -> None:
    assert rule.explain("supported", ["holds"], exact=False) == "supported"
    assert rule.explain("supported", ["holds", "refuted"], exact=False) == "not supported"
    assert rule.explain("supported", [U], exact=False) == U
    assert rule.explain("refuted", ["refuted"], exact=False) == "not supported"  # a share of no gap
    assert rule.explain("refuted", ["refuted"], exact=True) == "refuted"


# ---------------------------------------------------------------- evidence


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GPU on which rope_v7 took half as long as rope_separate, and nothing is counted."""
    gpu = {"name": "T", "slug": "t", "compute_capability": "9.0", "sms": 132, "ceilings": dict.fromkeys(CEILINGS, 1.0)}
    (tmp_path / "gpu.json").write_text(json.dumps(gpu))
    for name, table in (("COUNTS", "counts"), ("RESOURCES", "resources")):
        monkeypatch.setattr(load, name, tmp_path / f"{table}.csv")
    measure(tmp_path)
    return tmp_path


def measure(card: Path, factor: float = 1, study: str = "log", run: str = "r", **more: Any) -> None:
    """A run in which rope_v7 takes `factor` times half as long as rope_separate."""
    times = {"rope_separate": [20.0, 22.0, 40.0], "rope_v7": [factor * us for us in (10.0, 11.0, 20.1)]}
    add_run(card, run, times, study=study, **more)


def claim(kind: str, ask: Callable[[Evidence], Iterator[Test]]) -> Claim:
    return Claim("A-01", kind, "it is faster", ask, "", {})


def twice(e: Evidence) -> Iterator[Test]:
    yield speed(e, *V7, 512, published=2)


def twice_in_log(e: Evidence) -> Iterator[Test]:
    yield speed(e, *V7, 512, study="log", published=2)


def asked(card: Path, measured: Callable[[Evidence], Any], **given: Any) -> dict[str, Any]:
    """The row of a universal headline."""
    given = given or {"least": 1}
    return judge.judge_claim(claim("universal", lambda e: iter([headline("n", measured(e), **given)])), at(card))[0]


def at(card: Path) -> Evidence:
    return Evidence.load(card)


def columns(row: dict[str, Any], table: str) -> dict[str, Any]:
    """The cells of a row in a table."""
    known = {column.name for column in SCHEMAS[table]}
    return {name: value for name, value in row.items() if name in known}


def test_row_says_what_it_compares_and_what_it_is_from(card: Path) -> None:
    row = judge.judge_claim(claim("number", twice), at(card))[0]
    assert row["outcome"] == REPRODUCED and row["measured"] == pytest.approx(1.997, abs=1e-3)
    assert row["low"] > 1.98 and row["high"] < 2.02, "the spread of the times themselves is no matter"
    assert (row["place"], row["unit"], row["rule"]) == ("head dim 512", "x", "published 2×")
    assert row["evidence"] == "timings of log, run r"
    row = asked(card, lambda e: e.blocks("rope_separate", hdim=512) * e.ceiling("read_gb_s"), equals=256)
    assert row["outcome"] == HOLDS and row["measured"] == 256 and "low" not in row and row["condition"] == ""
    assert row["evidence"] == "plans; gpu.json"


def test_bound_is_a_number_a_row_or_one_for_each_place() -> None:
    two = Estimates({512: Estimate.exact(1), 2048: Estimate.exact(2)}, "×")
    places = headline("n", {"a": two, "b": two}, published=("N107", "N108", "N109", 3)).places
    assert [(place.label, place.hdim) for place in places] == [("a", 512), ("a", 2048), ("b", 512), ("b", 2048)]
    assert [place.bounds[0].value for place in places] == [*(said(f"N10{i}").value for i in (7, 8, 9)), 3]
    with pytest.raises(ValueError, match="4 places and 2 bounds"):
        headline("n", {"a": two, "b": two}, least=(1, 2))


def test_single_process_decides_nothing(card: Path) -> None:
    add_run(card, "s", {"rope_separate": [20.0], "rope_v7": [10.0]}, study="filled")
    found = asked(card, lambda e: e.speedup(*V7, study="filled", hdim=512))
    assert (found["outcome"], found["reason"]) == (UNDECIDED, "a single process has no interval")
    assert found["measured"] == 2


def test_claim_of_times_is_judged_on_their_sms_by_both_clocks(card: Path) -> None:
    one = claim("number", twice)
    assert {row["verdict"] for row in judge.judge_claim(one, at(card))} == {UNDECIDED}, "no slice is measured"
    measure(card, 4, "slices", "s", timer="device_warm@48")
    judged = judge.judge_claim(one, at(card))
    given = {row["condition"]: row["given"] for row in judged if row["role"] == "headline"}
    assert given == {DEVICE: REPRODUCED, THEIR_SMS: "opposite"}, "by their clock it is not measured"
    assert {row["verdict"] for row in judged} == {"opposite"}, "the whole card decides nothing"
    measure(card, 1, "slices", "t", timer="launched@48")
    assert {row["verdict"] for row in judge.judge_claim(one, at(card))} == {"depends on the timer"}


def test_effect_counts_at_the_places_that_it_shares(card: Path) -> None:
    def ask(e: Evidence) -> Iterator[Test]:
        numbers = Estimates({512: Estimate.exact(1), 2048: Estimate.exact(1)}, "%")
        yield headline("n", {"a": numbers, "b": numbers}, least=0.5)
        yield effect("n", {"a": numbers}, least=(2, 0))

    rows = judge.judge_claim(claim("cause", ask), at(card))
    found = {row["place"]: row["outcome"] for row in rows if row["role"] == "headline"}
    assert found == {
        "a, head dim 512": "not supported", "a, head dim 2048": "supported", "b, head dim 512": "supported",
        "b, head dim 2048": "supported",
    }  # fmt: skip


def test_incomplete_run_decides_nothing(card: Path) -> None:
    measure(card, 4, run="s", complete=False)
    (row,) = judge.judge_claim(claim("number", twice_in_log), at(card))
    assert (row["verdict"], row["evidence"]) == (REPRODUCED, "timings of log, run r")


def test_stale_evidence_is_shown_so(card: Path) -> None:
    add_run(card, "s", {"rope_separate": [20.0, 22.0]})
    add_run(card, "s", {"rope_v7": [10.0, 11.0]}, source_hash="0" * 16)
    add_run(card, "s", {"rope_v7": [10.0, 11.0]}, source_hash="0" * 16, study="filled")
    assert asked(card, lambda e: e.time("rope_v7", hdim=512))["evidence"] == "timings of log, run r"
    assert asked(card, lambda e: e.time("rope_separate", hdim=512))["evidence"] == "timings of log, runs r, s"
    stale = asked(card, lambda e: e.time("rope_v7", study="filled", hdim=512))
    assert stale["evidence"] == "timings of filled, run s; stale: rope_v7"


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda e: e.time("rope_v7", timer="launched", hdim=512), "rope_v7 has no time by launched on rope B1 H4 S64"),
        (lambda e: e.count("rope_v7", "barriers", hdim=512), "counts of rope_v7 are not recorded"),
        (lambda e: e.counter("rope_v7", "dram__bytes_read.sum", hdim=512), "counters of rope_v7 are not recorded"),
        (lambda e: e.blocks("rope_v3", hdim=4096), "rope_v3 refuses hdim 4096: hdim 4096 needs 66,688 B"),
        (lambda e: 1 / e.status("rope_v7", "wrong", hdim=512), "it divides by a count of zero"),
    ],
)
def test_missing_value_is_undecided_and_says_why(card: Path, ask: Any, why: str) -> None:
    found = asked(card, ask)
    assert found["outcome"] == UNDECIDED and found["reason"].startswith(why)


def test_counts_and_counters_are_found_by_launch_and_shape(card: Path) -> None:
    common = {"version": "rope_separate", **problem_columns(PROBLEM), "source_hash": today("rope_separate")}
    counts = []
    for launch, values in enumerate(zip((10, 10, 50), (1, 2, 4), (10.0, 20.0, 40.0))):
        mine = {**common, "launch": launch, "target": "sm_90", "run": "r", "study": "log", "kernel": "k"}
        names = ("warp_inst", "barriers", "lts__t_sector_hit_rate.pct")
        rows = [{**mine, "counter": name, "metric": name, "value": value} for name, value in zip(names, values)]
        counts += [columns(row, "counts") for row in rows[:2]]
        other = {**rows[1], "metric": "dram__bytes_read.sum"}
        loaded = {**other, **problem_columns(matched(PROBLEM, 132)), "study": "matched", "value": values[1] + 1}
        profiled = [columns(row, "counters") for row in (other, rows[2], loaded)]
        add_rows(card, "counters", profiled)
    write_table(card / "counts.csv", "counts", counts)
    e = at(card)

    def value(found: Estimates) -> float:
        return found[512].value

    assert value(e.count("rope_separate", "barriers", hdim=512)) == 7
    assert value(e.count("rope_separate", "barriers warp_inst", launch=1, hdim=512)) == 12
    assert value(e.counter("rope_separate", "dram__bytes_read.sum", hdim=512)) == 7
    assert value(e.counter("rope_separate", "lts__t_sector_hit_rate.pct", hdim=512)) == 40
    assert value(e.counter("rope_separate", "lts__t_sector_hit_rate.pct", launch=0, hdim=512)) == 10
    assert value(e.under("matched").counter("rope_separate", "dram__bytes_read.sum", hdim=512)) == 10


# ---------------------------------------------------------------- the documents' claims


def test_claims_are_well_formed_and_contradict_each_other() -> None:
    e = Evidence.load(REFERENCE)
    assert {*read_table(DATA / "claims.csv", "claims")["claim_id"]} == {*CLAIMS}
    for one in judge.claims():
        tests = one.tests(e)
        assert one.kind in rule.KINDS and all(test.kind in rule.KINDS for test in tests)
        numbers = [test for test in tests if test.role == "headline"]
        assert all((test.kind == "number") == (test.rule in ("published", "direction")) for test in numbers), one.id
        assert {name for test in tests for name in test.names} <= {*VERSIONS, *by_id()}
        assert all(one.id in CLAIMS[other].against for other in one.against)


@pytest.mark.deep
def test_planted_change_flips_the_verdicts_that_depend_on_it_and_no_other(tmp_path: Path) -> None:
    """A version made ten times as fast."""
    version, copy = "attention_online_fixed", tmp_path / "planted"
    shutil.copytree(MEASURED / REFERENCE, copy)
    before = judge.verdicts(at(copy))
    timings = record.rows(copy, "timings")
    planted = timings["version"] == version
    timings.loc[planted, "median_us"] = timings.loc[planted, "median_us"].astype(float) / 10
    replace_rows(copy, "timings", timings.to_dict("records"))
    after = judge.verdicts(at(copy))
    pairs = list(zip(before, after, strict=True))
    flipped = {old["claim_id"] for old, new in pairs if old["verdict"] != new["verdict"]}
    # Values alone: intervals are pooled over versions.
    moved = {old["claim_id"] for old, new in pairs if old.get("measured") != new.get("measured")}
    naming = {claim for claim, names in judge.named(Evidence.load(REFERENCE).record).items() if version in names}
    assert flipped & naming and moved <= naming


@pytest.mark.parametrize(
    "gpu", [pytest.param(gpu, marks=[pytest.mark.deep] * (gpu != REFERENCE)) for gpu in known_gpus()]
)
def test_recorded_verdicts_are_todays(gpu: str, tmp_path: Path) -> None:
    write_table(tmp_path / "verdicts.csv", "verdicts", judge.verdicts(Evidence.load(MEASURED / gpu)))
    recorded = (MEASURED / gpu / "verdicts.csv").read_text(encoding="utf-8")
    assert recorded == (tmp_path / "verdicts.csv").read_text(encoding="utf-8"), "make claims brings them up to date"


def test_claims_command_writes_verdicts_and_names_an_unknown_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["claims", "--gpu", "abacus"]) == 1
    assert "claims: no GPU called 'abacus' has been measured" in capsys.readouterr().err
    monkeypatch.setattr(judge, "gpu_folder", lambda slug: tmp_path / slug)
    monkeypatch.setattr(judge, "claims", list)
    shutil.copytree(MEASURED / "nvidia-h200", tmp_path / "nvidia-h200")
    assert judge.main(["--gpu", "nvidia-h200"]) == 0
    assert capsys.readouterr().out.startswith("[claims] 0 claims: 0 reproduced, 0 holds, 0 supported")
    assert isinstance(pd.read_csv(tmp_path / "nvidia-h200" / "verdicts.csv"), pd.DataFrame)
