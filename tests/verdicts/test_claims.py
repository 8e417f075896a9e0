"""Claims and their verdicts: what claims.yml may say, how a verdict comes about, and that it follows the data."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from analysis.measure.studies import matched
from analysis.records.current import today
from analysis.records.files import (
    MEASURED,
    REFERENCE,
    DataError,
    append_rows,
    known_gpus,
    problem_columns,
    read_json,
    read_table,
    write_table,
)
from analysis.records.interval import Ratio
from analysis.records.measured import CEILINGS
from analysis.verdicts import claims, facts, rule
from analysis.verdicts.claims import Test, judge, judge_claim, load, verdicts
from analysis.verdicts.facts import Facts
from analysis.verdicts.rule import (
    HOLDS,
    JUDGED,
    OPEN,
    REFUTED,
    REPRODUCED,
    UNDECIDED,
    Undecided,
    decide,
)
from kernels import Problem

Test.__test__ = False  # type: ignore[attr-defined]  # not a test of pytest
PARTIAL = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)
FULL = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=512)
ONE = {
    "id": "A-01",
    "kind": "number",
    "claim": "it is faster",
    "sources": [{"document": "RoPE Fusion Implementation Log", "place": "V1 item 1; line 15"}],
    "decides": [
        {"note": "a ratio", "measure": 'speed("rope_v7", "rope_separate", 512)', "published": 1.4, "role": "headline"}
    ],
}


# ---------------------------------------------------------------- claims.yml


def ledger(tmp_path: Path, *entries: dict) -> Path:
    path = tmp_path / "claims.yml"
    path.write_text(yaml.safe_dump({"wanted": {"rope_v9": "something"}, "claims": list(entries)}))
    return path


def measured(text: str, **rule: object) -> dict:
    return {"kind": "universal", "decides": [{"note": "n", "measure": text, "role": "headline", **rule}]}


HEAD = measured("1", least=1)["decides"][0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"contradicts": ["B-01"]}, "it contradicts 'B-01', which does not contradict it"),
        ({"kind": "universal", "decides": [HEAD, {**HEAD, "part": "p"}]}, "exactly one headline is due"),
        ({"kind": "opinion"}, "kind is 'opinion'; allowed: number, universal, count, cause, undecided"),
        (measured("1", least=1, most=2), "exactly one of published, direction, least, most, between, equals is due"),
        (measured("hdim", least=1), "'hdim' is not among the names: none"),
        (measured("open('x')", least=1), "functions are: us, speed, "),
        (measured("us('rope_v77', 512)", least=1), "'rope_v77' is neither registered nor listed under wanted"),
        (measured("said('N9999')", least=1), "published.csv has no row N9999"),
    ],
)
def test_what_is_wrong_is_named_by_file_claim_and_what_is_allowed(tmp_path: Path, change: dict, says: str) -> None:
    path = ledger(tmp_path, {**ONE, **change})
    with pytest.raises(DataError) as error:
        load(path)
    assert f"{path}, {change.get('id', 'A-01')}" in str(error.value) and says in str(error.value)


def test_an_id_is_taken_once_and_a_broken_file_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"claims\.yml, A-01: the id is taken"):
        load(ledger(tmp_path, ONE, ONE))
    with pytest.raises(DataError, match=r"absent\.yml: no such file"):
        load(tmp_path / "absent.yml")
    (tmp_path / "claims.yml").write_text("claims: [")
    with pytest.raises(DataError, match=r"claims\.yml: while parsing"):
        load(tmp_path / "claims.yml")


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
def test_an_outcome_follows_from_the_interval(
    kind: str, rule: str, bounds: list, interval: tuple, outcome: str
) -> None:
    assert decide(kind, rule, bounds, Ratio(sum(interval) / 2, *interval), unit="of the gap") == outcome


def test_a_printed_number_is_met_by_what_rounds_to_it() -> None:
    assert decide("count", "equals", [16.8e6], Ratio(*(16_777_216.0,) * 3), digits=3) == "exact"
    assert decide("count", "equals", [16.8e6], Ratio(*(16_777_216.0,) * 3)) == "wrong"
    assert decide("count", "equals", [0.47], Ratio(*(0.4651,) * 3), digits=2) == "exact"


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
        ("cause", ["not tested", "not tested"], "not tested"),
    ],
)
def test_a_verdict_follows_from_the_places_of_the_headline(kind: str, places: list[str], verdict: str) -> None:
    assert rule.verdict(kind, places) == verdict


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({"device": S}, S),
        ({"as timed": R, "device": S}, S),
        ({"as timed": N, "device": P}, N),
        ({"as timed": S, "device": P}, "depends on the timer"),
        ({"as timed": P, "device": P, "matched": S}, "depends on the load"),
        ({"as timed": S, "device": P, "matched": P}, "depends on the timer"),
        ({"as timed": U, "device": P}, P),
        ({"device": "not tested"}, "not tested"),
    ],
)
def test_conditions_that_disagree_are_the_verdict(given: dict[str, str], verdict: str) -> None:
    assert rule.across(given) == verdict


def test_a_condition_whose_interval_is_too_wide_demotes_nothing() -> None:
    given = {"as timed": "same direction", "device": "reproduced", "matched": "reproduced"}
    assert rule.across(given) == "same direction" and rule.across(given, unsure=["as timed"]) == "reproduced"
    assert rule.across({**given, "device": "opposite"}, unsure=["as timed"]) == rule.across(
        {**given, "device": "opposite"}
    )
    assert rule.across(dict.fromkeys(given, "same direction"), unsure=list(given)) == "same direction"
    wide, clear = Ratio(1.4, 1.2, 1.6), Ratio(1.4, 1.38, 1.42)
    assert rule.too_wide(1.3, 1.3, rule.compare(1.3, 1.3, wide), wide)
    assert not rule.too_wide(1.2, 1.2, rule.compare(1.2, 1.2, clear), clear)


def test_the_words_of_a_claim_decide_its_verdict_on_the_record() -> None:
    """A size, "only", a count or a rival cause in a claim: verdicts that a blind audit found too kind or too hard."""
    found = {name: rows[0]["verdict"] for name, rows in claims.recorded("nvidia-h200").items()}
    expected = {
        **dict.fromkeys(("A-17", "A-22", "C-21", "C-24", "E-16"), "refuted"),
        **dict.fromkeys(("B-07", "B-10", "B-13", "B-16", "E-05"), "in part"),
        "C-10": "depends on the load",
        "C-22": "reproduced",
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        (["holds", "refuted"], "in part"),
        (["holds", "exact"], "holds"),
        (["wrong", "refuted"], "refuted"),
        (["holds", U], U),
        (["wrong"], "wrong"),
    ],
)
def test_parts_that_disagree_are_in_part(parts: list[str], verdict: str) -> None:
    assert rule.together(parts) == verdict


def test_a_cause_needs_an_effect() -> None:
    assert rule.explain("supported", ["holds"], exact=False) == "supported"
    assert rule.explain("supported", ["holds", "refuted"], exact=False) == "not supported"
    assert rule.explain("supported", [U], exact=False) == U
    assert rule.explain("refuted", ["refuted"], exact=False) == "not supported"  # a share of no gap
    assert rule.explain("refuted", ["refuted"], exact=True) == "refuted"


# ---------------------------------------------------------------- evidence


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GPU on which rope_v7 took half as long as rope_separate, and nothing is counted."""
    gpu = {"name": "T", "slug": "t", "compute_capability": "9.0", "sms": 2, "ceilings": dict.fromkeys(CEILINGS, 2.0)}
    (tmp_path / "gpu.json").write_text(json.dumps(gpu))
    for name, table in (("COUNTS", "counts"), ("RESOURCES", "resources")):
        monkeypatch.setattr(facts, name, tmp_path / f"{table}.csv")
    words = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "throttle", "commit")
    numbers = {"complete": True, "seconds": 1.0, "sm_mhz_max": 1, "power_limit_w": 1}
    run = {**dict.fromkeys((*words, "started_at", "finished_at"), "x"), **numbers, "run": "r", "study": "log"}
    append_rows(tmp_path / "runs.csv", "runs", [run])
    for version, times in (("rope_separate", [20.0, 22.0, 40.0]), ("rope_v7", [10.0, 11.0, 20.1])):
        for problem in (PARTIAL, FULL):
            mine = {"run": "r", "study": "log", "version": version, "source_hash": today(version), "status": "ok"}
            mine |= {**problem_columns(problem), "measured_at": "x"}
            check = {"max_abs_err": 1e-7, "allowed_abs_err": 4e-7, "nan_share": 0.0, "inputs": "uniform"}
            append_rows(tmp_path / "checks.csv", "checks", [{**mine, **check}])
            timed = [
                {**mine, "process": process, "timer": "device_warm", "median_us": us}
                for process, us in enumerate(times, start=1)
            ]
            append_rows(tmp_path / "timings.csv", "timings", timed)
    return tmp_path


def outcome(folder: Path, measure: str, rule: str = "least", bound: str = "1") -> dict:
    return judge(Test("n", measure, rule, (bound,)), Facts(folder))


def test_a_ratio_is_taken_within_a_process(folder: Path) -> None:
    found = outcome(folder, 'speed("rope_v7", "rope_separate", 512)', "published", "2")
    assert found["outcome"] == REPRODUCED and found["measured"] == pytest.approx(1.997, abs=1e-3)
    assert found["low"] > 1.98 and found["high"] < 2.02, "the spread of the times themselves is no matter"
    assert found["evidence"] == "timings of log, run r"
    gap = outcome(folder, '(us("rope_separate", 512) - us("rope_v7", 512)) / us("rope_separate", 512)')
    assert gap["measured"] == pytest.approx(0.5, abs=0.01) and gap["outcome"] == REFUTED


def test_exact_numbers_have_no_interval(folder: Path) -> None:
    found = outcome(folder, 'launches("rope_separate", 512) * ceiling("read_gb_s")', "equals", "6")
    assert found["outcome"] == HOLDS and found["measured"] == 6 and "low" not in found
    assert found["evidence"] == "plans; gpu.json"


def test_one_process_decides_nothing(folder: Path) -> None:
    timings = read_table(folder / "timings.csv", "timings").to_dict("records")
    write_table(folder / "timings.csv", "timings", [row for row in timings if row["process"] == 1])
    found = outcome(folder, 'speed("rope_v7", "rope_separate", 512)')
    assert (found["outcome"], found["reason"]) == (UNDECIDED, "a single process has no interval")
    assert found["measured"] == 2


def add_run(folder: Path, factor: float, study: str = "matched", run: str = "s") -> None:
    """A run of a study in which rope_v7 takes `factor` times as long as in run r of the log."""
    copied = {name: read_table(folder / f"{name}.csv", name) for name in ("runs", "checks", "timings")}
    for name, table in copied.items():
        first = table[(table["run"] == "r") & (table["study"] == "log")]
        rows = [{**row, "study": study, "run": run} for row in first.to_dict("records")]
        for row in rows:
            if name == "timings" and row["version"] == "rope_v7":
                row["median_us"] = factor * float(row["median_us"])
        append_rows(folder / f"{name}.csv", name, rows)


def test_a_claim_depends_on_the_load_where_the_matched_study_disagrees(folder: Path) -> None:
    head = Test("n", 'speed("rope_v7", "rope_separate", 512)', "published", ("2",), role="headline", kind="number")
    support = Test("n", 'us("rope_v7", 512)', "most", ("0",))
    claim = claims.Claim("A-01", "number", "it is faster", (), (), (head, support))
    assert {row["verdict"] for row in judge_claim(claim, Facts(folder))} == {REPRODUCED}, "support decides nothing"
    add_run(folder, 4)
    judged = judge_claim(claim, Facts(folder))
    assert {row["verdict"] for row in judged} == {"depends on the load"}
    given = {row["condition"]: row["given"] for row in judged if row["role"] == "headline"}
    assert given == {"device": REPRODUCED, "matched": "opposite"}, "as timed it is not measured"
    assert [row["condition"] for row in judged if row["role"] == "support"] == ["device", "matched"]


def test_a_cause_is_not_tested_where_another_load_alone_has_its_effect(folder: Path) -> None:
    closing = 'speed("rope_v7", "rope_separate", 512, study="log")'
    head = Test("n", closing, "least", ("0.5",), role="headline", kind="cause")
    effect = Test("n", 'speed("rope_separate", "rope_v7", 512)', "least", ("1.03",), role="effect")
    claim = claims.Claim("A-01", "cause", "it is slower because", (), (), (head, effect))
    assert {row["verdict"] for row in judge_claim(claim, Facts(folder))} == {"not supported"}
    add_run(folder, 4)
    judged = judge_claim(claim, Facts(folder))
    assert {row["verdict"] for row in judged} == {"not tested"}
    assert [(row["condition"], row["outcome"]) for row in judged if row["role"] == "effect"] == [
        ("device", REFUTED),
        ("matched", HOLDS),
    ]


def test_what_spans_studies_is_asked_of_the_latest_run_that_measured_them_all(folder: Path) -> None:
    add_run(folder, 3, "filled", "r")
    add_run(folder, 4, "log", "s")
    over = 'us("rope_v7", 512, study="filled") / us("rope_v7", 512)'
    found = outcome(folder, over)
    assert found["measured"] == pytest.approx(3) and found["low"] > 2.9, "of the log that was measured with it"
    assert found["evidence"] == "timings of filled, run r; timings of log, run r"
    assert outcome(folder, 'us("rope_v7", 512)')["evidence"] == "timings of log, run s"
    add_run(folder, 2, "filled", "s")
    assert outcome(folder, over)["measured"] == pytest.approx(0.5)


def test_a_verdict_is_asked_of_the_run_before_as_well_where_it_is_of_the_same_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "pools", lambda folder: {})  # two runs that disagree would leave all of it open
    head = Test("n", 'speed("rope_v7", "rope_separate", 512)', "published", ("2",), role="headline", kind="number")
    claim = claims.Claim("A-01", "number", "it is faster", (), (), (head,))

    def found() -> set[tuple[str, str]]:
        return {(row["before"], row["verdict"]) for row in verdicts(folder, [claim])}

    assert found() == {(REPRODUCED, REPRODUCED)}, "there is no run before"
    add_run(folder, 4, "log", "s")
    assert found() == {(REPRODUCED, "opposite")}
    for table in ("checks", "timings"):
        rows = read_table(folder / f"{table}.csv", table)
        rows.loc[(rows["run"] == "r") & (rows["version"] == "rope_v7"), "source_hash"] = "0" * 16
        write_table(folder / f"{table}.csv", table, rows.to_dict("records"))
    assert found() == {("opposite", "opposite")}


def test_stale_evidence_is_shown_so(folder: Path) -> None:
    for table in ("checks", "timings"):
        rows = read_table(folder / f"{table}.csv", table).to_dict("records")
        changed = [row | {"source_hash": "0" * 16} if row["version"] == "rope_v7" else row for row in rows]
        write_table(folder / f"{table}.csv", table, changed)
    assert outcome(folder, 'us("rope_v7", 512)')["evidence"] == "timings of log, run r; stale: rope_v7"
    assert outcome(folder, 'us("rope_separate", 512)')["evidence"] == "timings of log, run r"
    row = {"version": "rope_separate", **problem_columns(PARTIAL), "source_hash": "0" * 16, "target": "sm_90"}
    append_rows(folder / "counts.csv", "counts", [{**row, "launch": 0, "counter": "warp_inst", "value": 1}])
    assert outcome(folder, 'count("rope_separate", "warp_inst", 512)')["evidence"] == "counts; stale: rope_separate"


@pytest.mark.parametrize(
    ("measure", "why"),
    [
        ('us("rope_v9", 512)', "rope_v9 is not measured"),
        ('us("rope_v7", 512, timer="launched")', "rope_v7 has no time by launched on rope B1 H4 S64 D512 R128"),
        ('count("rope_v7", "barriers", 512)', "counts of rope_v7 are not recorded"),
        ('counter("rope_v7", "dram__bytes_read.sum", 512)', "counters of rope_v7 are not recorded"),
        ('launches("rope_v9", 512)', "there is no rope_v9"),
        ('launches("rope_v3", 4096)', "rope_v3 refuses hdim 4096: hdim 4096 needs 66,688 B"),
        ('1 / status("rope_v7", 512, "wrong")', "it divides by a count of zero"),
    ],
)
def test_what_cannot_be_had_is_undecided_and_says_why(folder: Path, measure: str, why: str) -> None:
    found = outcome(folder, measure)
    assert found["outcome"] == UNDECIDED and found["reason"].startswith(why)


def test_a_question_about_several_problems_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="'colour' does not choose a problem"):
        outcome(folder, 'us("rope_v7", 512, colour=1)')
    with pytest.raises(DataError, match=r"the emulator counts nothing called 'inst\.fmma'"):
        outcome(folder, 'count("rope_v7", "inst.fmma", 512)')
    with pytest.raises(DataError, match="may be any of: fp16 B1 H8 S512 D64; fp16 B2"):
        both = [Problem("fp16", 1, 8, seq_q=512, hdim=64), Problem("fp16", 2, 8, seq_q=512, hdim=64)]
        facts._choose(both, ("fp16_phase4",), 64, {})


def test_counts_and_counters_are_found_by_launch(folder: Path) -> None:
    common = {"version": "rope_separate", **problem_columns(PARTIAL), "source_hash": today("rope_separate")}
    counted = {"warp_inst": (10, 10, 50), "barriers": (1, 2, 4)}
    rows = [
        {**common, "target": "sm_90", "launch": launch, "counter": counter, "value": value}
        for counter, values in counted.items()
        for launch, value in enumerate(values)
    ]
    append_rows(folder / "counts.csv", "counts", rows)
    profiled = {"dram__bytes_read.sum": (1.0, 2.0, 4.0), "lts__t_sector_hit_rate.pct": (10.0, 20.0, 40.0)}
    common |= {"run": "r", "study": "log", "kernel": "k"}
    rows = [
        {**common, "launch": launch, "metric": metric, "value": value}
        for metric, values in profiled.items()
        for launch, value in enumerate(values)
    ]
    append_rows(folder / "counters.csv", "counters", rows)
    known = Facts(folder)
    assert known.count("rope_separate", "barriers", 512) == 7
    assert known.count("rope_separate", "barriers", 512, launch=1) == 2
    assert known.count("rope_separate", "inst.mufu.sin", 512) == 0
    with pytest.raises(Undecided, match="events of rope_separate are not counted"):
        known.count("rope_separate", "event.rotation", 512)
    assert known.counter("rope_separate", "dram__bytes_read.sum", 512) == 7
    assert known.counter("rope_separate", "lts__t_sector_hit_rate.pct", 512) == 40
    assert known.counter("rope_separate", "lts__t_sector_hit_rate.pct", 512, launch=0) == 10
    assert known.used == {"counts": None, "counters": None} and not known.stale


def test_a_speedup_is_asked_for_under_a_condition(folder: Path) -> None:
    sms = read_json(folder / "gpu.json")["sms"]
    run = read_table(folder / "runs.csv", "runs").to_dict("records")[0]
    append_rows(folder / "runs.csv", "runs", [{**run, "study": "matched"}])
    times = {("log", "launched"): (40.0, 20.0), ("matched", "device_warm"): (9.0, 3.0), ("matched", "launched"): (8, 2)}
    for (study, timer), pair in times.items():
        problem = matched(PARTIAL, sms) if study == "matched" else PARTIAL
        for version, us in zip(("rope_separate", "rope_v7"), pair):
            row = {"run": "r", "study": study, "version": version, "source_hash": today(version), "status": "ok"}
            row |= {**problem_columns(problem), "measured_at": "x"}
            timing = {"process": 1, "timer": timer, "median_us": us}
            check = {"max_abs_err": 1e-7, "allowed_abs_err": 4e-7, "nan_share": 0.0, "inputs": "uniform"}
            append_rows(folder / "timings.csv", "timings", [{**row, **timing}])
            if timer == "device_warm":
                append_rows(folder / "checks.csv", "checks", [{**row, **check}])
    known = Facts(folder)
    found = {}
    for known.condition in JUDGED:
        found[known.condition] = known.speed("rope_v7", "rope_separate", 512).iloc[0]
    assert found == {"as timed": 2.0, "device": 2.0, "matched": 3.0}


def test_counters_are_those_of_the_published_shape_unless_the_matched_one_is_asked_for(folder: Path) -> None:
    other = matched(PARTIAL, read_json(folder / "gpu.json")["sms"])
    assert other.heads != PARTIAL.heads
    common = {"version": "rope_v7", "source_hash": today("rope_v7"), "run": "r", "study": "x", "kernel": "k"}
    rows = [
        {**common, **problem_columns(problem), "launch": 0, "metric": "smsp__inst_executed.sum", "value": value}
        for problem, value in ((PARTIAL, 5.0), (other, 7.0))
    ]
    append_rows(folder / "counters.csv", "counters", rows)
    known = Facts(folder)
    assert known.counter("rope_v7", "smsp__inst_executed.sum", 512) == 5
    assert known.counter("rope_v7", "smsp__inst_executed.sum", 512, study="matched") == 7
    with pytest.raises(Undecided, match="nothing at hdim 512, study filled"):
        known.counter("rope_v7", "smsp__inst_executed.sum", 512, study="filled")


# ---------------------------------------------------------------- the recorded verdicts


@pytest.mark.deep
def test_a_planted_change_flips_the_verdicts_that_depend_on_it_and_no_other(tmp_path: Path) -> None:
    """A version made ten times as fast."""
    version, copy = "attention_online_fixed", tmp_path / "planted"
    shutil.copytree(MEASURED / "nvidia-h200", copy, ignore=shutil.ignore_patterns("history"))  # of other times
    before = verdicts(copy)
    timings = read_table(copy / "timings.csv", "timings")
    planted = timings["version"] == version
    timings.loc[planted, "median_us"] = timings.loc[planted, "median_us"].astype(float) / 10
    write_table(copy / "timings.csv", "timings", timings.to_dict("records"))
    after = verdicts(copy)
    pairs = list(zip(before, after, strict=True))
    flipped = {old["claim_id"] for old, new in pairs if old["verdict"] != new["verdict"]}
    # Values alone: intervals are pooled over versions.
    moved = {old["claim_id"] for old, new in pairs if old.get("measured") != new.get("measured")}
    naming = {claim.id for claim in load() for test in claim.tests if version in claims.versions_of(test)}
    deciding = {
        claim.id
        for claim in load()
        for test in claim.tests
        if version in claims.versions_of(test) and test.role != "support"
    }
    assert flipped and flipped <= deciding and moved <= naming


@pytest.mark.parametrize(
    "gpu", [pytest.param(gpu, marks=[pytest.mark.deep] * (gpu != REFERENCE)) for gpu in known_gpus()]
)
def test_the_recorded_verdicts_are_todays(gpu: str, tmp_path: Path) -> None:
    write_table(tmp_path / "verdicts.csv", "verdicts", verdicts(MEASURED / gpu))
    recorded = (MEASURED / gpu / "verdicts.csv").read_text(encoding="utf-8")
    assert recorded == (tmp_path / "verdicts.csv").read_text(encoding="utf-8"), "make claims brings them up to date"


@pytest.mark.parametrize("gpu", known_gpus())
def test_every_claim_has_one_verdict_and_every_doubt_a_reason(gpu: str) -> None:
    recorded = read_table(MEASURED / gpu / "verdicts.csv", "verdicts")
    assert (recorded.groupby("claim_id")["verdict"].nunique() == 1).all()
    assert list(dict.fromkeys(recorded["claim_id"])) == [claim.id for claim in load()]
    assert set(recorded["verdict"]) | set(recorded["outcome"]) <= set(rule.VERDICTS)
    doubts = recorded["outcome"].isin(OPEN)
    assert recorded.loc[doubts, "reason"].notna().all()
    unexplained = recorded["reason"] == claims.NO_EFFECT  # where its effect is missing, a cause needs no value
    assert recorded.loc[~doubts & ~unexplained, "measured"].notna().all()


def test_the_command_writes_them_and_names_an_unknown_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert claims.main(["--gpu", "abacus"]) == 1
    assert "claims: no GPU called 'abacus' has been measured" in capsys.readouterr().err
    monkeypatch.setattr(claims, "gpu_folder", lambda slug: tmp_path / slug)
    monkeypatch.setattr(claims, "load", list)
    shutil.copytree(MEASURED / "nvidia-h200", tmp_path / "nvidia-h200")
    assert claims.main(["--gpu", "nvidia-h200"]) == 0
    assert capsys.readouterr().out.startswith("[claims] 0 claims: 0 reproduced, 0 holds, 0 supported")
    assert isinstance(pd.read_csv(tmp_path / "nvidia-h200" / "verdicts.csv"), pd.DataFrame)
