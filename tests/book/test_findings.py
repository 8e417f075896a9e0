"""Findings: sentences with the conditions that make them true, on the front page and in the README."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis.book import findings, front
from analysis.book.chapters import decode, fuse, fusion, setup, story, use
from analysis.book.findings import Finding, Speedups, broken, evaluate, every
from analysis.book.site import build
from analysis.figures import rope_savings, style
from analysis.measure.studies import study
from analysis.models import counter_agreement, profiles, roofline, steps, targets
from analysis.models.advice import few_heads, many_heads, short
from analysis.records.files import REFERENCE, DataError
from analysis.records.interval import LIKELY, Ratio
from analysis.records.measured import Measured, Time
from analysis.verdicts import questions
from analysis.verdicts.expressions import names_in
from analysis.verdicts.facts import Facts

OF_NO_RATIO = (
    "causes-alike",
    "rope-race",
    "v8-tiles",
    "v8-counters",
    "use-half",
    "setup-floor",
    "use-errors",
)  # their conditions have tests of their own
OF_COUNTERS = (
    "counters-wavefronts",
    "roofline-reached",
    "roofline-intensity",
    "roofline-published",
    "counters-bound",
    "counters-large",
    "counters-coherent",
)
QUESTIONS = {f"{each.chapter}-{each.id}": each for each in questions.load()}
NOTEBOOKS = sorted(findings.NOTEBOOKS.glob("*.ipynb"))
FRONT, USE = (findings.NOTEBOOKS / f"{name}.ipynb" for name in ("index", "use"))
FASTER, SLOWER, TIE = Ratio(1.5, 1.4, 1.6), Ratio(0.8, 0.75, 0.85), Ratio(1.01, 0.99, 1.02)


@pytest.fixture(scope="module")
def front_page() -> list[Finding]:
    return evaluate(FRONT, REFERENCE)


def test_every_finding_holds_on_the_reference_record() -> None:
    found = [each for path in NOTEBOOKS for each in evaluate(path, REFERENCE)]
    assert len(found) >= 3 and not broken(found)
    assert len({each.id for each in found}) == len(found)


def test_findings_cease_to_hold_where_the_compared_values_are_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    ratio = Measured.ratio
    monkeypatch.setattr(Measured, "ratio", lambda self, a, b, *rest: ratio(self, b, a, *rest))
    across = fusion.across
    monkeypatch.setattr(fusion, "across", lambda evidence, a, b: across(evidence, b, a))
    over = decode.Token.over
    monkeypatch.setattr(decode.Token, "over", lambda self, slow, fast: over(self, fast, slow))
    read, other = use.read_records, {"op": "launch", "launch": "op", "ok": "wrong", "wrong": "ok"}

    def swapped(row: dict) -> dict:
        return row | {name: other.get(row[name], row[name]) for name in ("what", "status") if name in row}

    time_of = steps.time_of
    monkeypatch.setattr(steps, "time_of", lambda *asked: 1e3 / us if (us := time_of(*asked)) else us)
    best = steps.best
    monkeypatch.setattr(steps, "best", lambda *asked, **shape: 1e3 / us if (us := best(*asked, **shape)) else us)
    monkeypatch.setattr(use, "read_records", lambda *asked: [swapped(row) for row in read(*asked)])
    step_up = story.step_up

    def step_down(*asked: Any) -> Speedups:
        found = step_up(*asked).by_hdim.items()
        return Speedups({hdim: Ratio(1 / each.value, 1 / each.high, 1 / each.low) for hdim, each in found})

    monkeypatch.setattr(story, "step_up", step_down)
    speed, closed = Facts.speed, Facts.closed
    monkeypatch.setattr(Facts, "speed", lambda self, a, b, *rest, **chosen: speed(self, b, a, *rest, **chosen))
    monkeypatch.setattr(Facts, "closed", lambda self, a, b, c, *rest, **ch: closed(self, c, b, a, *rest, **ch))
    found = [each for path in NOTEBOOKS for each in evaluate(path, REFERENCE)]
    found = [each for each in found if each.id not in (*OF_NO_RATIO, *OF_COUNTERS)]
    found = [each for each in found if each.id not in QUESTIONS or compares(QUESTIONS[each.id])]
    assert [each.id for each in found if each.outcome != findings.DIFFERS] == []
    assert all(each.text.startswith("**Differs from the reference**") for each in found)
    assert [each.id for each in found if "Ratio(" in each.text] == []  # numbers as a reader has them


def compares(question: questions.Question) -> bool:
    """Whether two versions decide a question; what else decides one is broken in tests/verdicts/test_questions.py."""
    deciding = [question.items[name].measure for name in names_in(question.holds)]
    return any(function in measure for measure in deciding for function in ("speed(", "closed("))


def test_findings_of_counters_cease_to_hold_where_a_unit_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = profiles.launches
    busy = {"dram_percent": 70.0, "issue_percent": 0.1}

    def warm(folder: Path) -> pd.DataFrame:
        found = launches(folder)
        return found.assign(**busy, dram_read_bytes=found["dram_read_bytes_cold"])

    near = {"percent_of_roof": 70.0, "flop_per_byte": 0.1}
    points = roofline.points(Measured.load(REFERENCE)).assign(**near)
    published = roofline.published_points().assign(**near)
    monkeypatch.setattr(profiles, "launches", warm)
    compare = counter_agreement.compare
    monkeypatch.setattr(counter_agreement, "compare", lambda *tables: compare(*tables).assign(ratio=1.0))
    monkeypatch.setattr(roofline, "points", lambda evidence: points)
    monkeypatch.setattr(roofline, "published_points", lambda: published)
    paths = [findings.NOTEBOOKS / f"{name}.ipynb" for name in ("roofline", "counters")]
    found = [each for path in paths for each in evaluate(path, REFERENCE)]
    assert {each.id for each in found} == set(OF_COUNTERS) and not any(each.holds for each in found)


def test_the_other_findings_cease_to_hold_as_well() -> None:
    measured, filled = Measured.load(REFERENCE), Measured.load(REFERENCE, "filled")
    few, full, none = (story.raced(each, "rope") for each in (measured, filled, Measured.nothing(REFERENCE, "filled")))
    assert few.hidden and full.shown and not few.shown and not full.hidden
    assert none.hidden is None and none.shown is None
    near = filled.checks.assign(max_abs_err=2 * filled.checks["allowed_abs_err"])  # rounding could do as much
    assert not story.raced(replace(filled, checks=near), "rope").shown


def test_blocks_fill_a_card_by_what_a_multiprocessor_holds() -> None:
    matched = Measured.load(REFERENCE, "matched")
    full = story.occupied(matched, "rope_separate").by_hdim[128].value
    assert full == pytest.approx(matched.shapes("rope_separate")[128].heads * 64 / (5 * 132))  # 48 registers a thread
    assert story.occupied(Measured.nothing(REFERENCE, "matched"), "rope_v7").below(1) is None
    assert f"{story.printed(matched, 'rope_v7')}" == "not measured"  # no document has these shapes


def test_time_steps_up_where_the_blocks_of_a_version_no_longer_fit() -> None:
    measured, problems, least = Measured.load(REFERENCE), study("waves").problems, {512: 10.0, 2048: 30.0}
    at_once = {"rope_separate": 5 * 132, "rope_v7": 6 * 132}

    def spread(frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of one problem, for each of the study's."""
        mine = frame[frame["version"].isin(at_once) & (frame["problem"] == measured.shapes("rope_v7")[512])]
        return pd.concat([mine.assign(problem=[problem] * len(mine)) for problem in problems], ignore_index=True)

    timings = spread(measured.timings[measured.timings["timer"] == "device_warm"])
    timings["median_us"] = [
        least[row.problem.hdim] * -(-row.problem.heads * 64 // at_once[row.version]) * (1 + row.process / 1e4)
        for row in timings.itertuples()
    ]
    waves = replace(measured, timings=timings, checks=spread(measured.checks))
    own = {name: story.step_up(waves, name, name) for name in at_once}
    other = story.step_up(waves, "rope_v7", "rope_separate")
    assert own["rope_separate"].faster and own["rope_v7"].faster and other.not_faster and other.not_slower
    assert [f"{each:}" for each in (*own.values(), other)] == ["2.00×", "2.00×", "1.00×"]
    assert sorted(other.by_hdim) == [512, 2048]
    heads, won, same = story.windows(waves)
    assert (heads, f"{won}", f"{same}") == ("11 to 12 and 21 to 24", "1.50–2.00×", "1.00×")
    level = replace(waves, timings=timings.assign(median_us=10.0))
    assert not story.step_up(level, "rope_v7", "rope_v7").faster


def test_a_second_round_is_needed_where_fewer_blocks_fit_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    online, two_pass = "attention_online_fixed", "attention_two_pass_float4"
    loaded, measured = Measured.load(REFERENCE, "matched"), Measured.load(REFERENCE)
    assert story.needs_second_round(loaded, online, two_pass, 512, 2048)
    assert story.needs_second_round(loaded, two_pass, online, 512, 2048) is False
    assert story.needs_second_round(measured, online, two_pass, 512, 2048) is False  # two blocks for each SM
    assert story.needs_second_round(Measured.nothing(REFERENCE, "matched"), online, two_pass, 512) is None
    monkeypatch.setattr(Measured, "target", "sm_89")
    monkeypatch.setitem(measured.gpu, "sms", 48)  # the authors' card
    assert story.needs_second_round(measured, online, two_pass, 512, 2048)
    monkeypatch.setattr(Measured, "target", "sm_1")
    assert story.needs_second_round(loaded, online, two_pass, 512) is None


def test_a_time_near_the_floor_is_not_far_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured.load(REFERENCE)
    assert setup.serial_bound(measured).holds and setup.serial_bound(Measured.nothing(REFERENCE, "log")).holds is None
    monkeypatch.setattr(Measured, "time", lambda *asked: Time(5.0, 5.0, 5.0))  # little more than the floor
    assert setup.serial_bound(measured).holds is False


def test_v8s_errors_are_of_every_checked_problem_and_a_wrong_one_is_noticed() -> None:
    found = use.errors(targets.read(REFERENCE))
    worst = max(found.checks, key=lambda each: each.max_abs_err)
    assert len(found.checks) > 80 and found.small and f"{worst.max_abs_err:.1e}" in found.largest
    wrong = found._replace(checks=[*found.checks, worst._replace(status="wrong")])
    assert wrong.small is False and use.Errors().small is None and use.Errors().largest == "not measured"


def test_what_is_not_measured_is_said_with_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Measured, "ratio", lambda *asked: None)
    for each in evaluate(FRONT, REFERENCE):
        assert each.outcome == "not measured" and each.text.startswith(f"**Not measured here** ({each.id}): ")
        assert "card NVIDIA H200" in each.text and " not measured" in each.text


def test_conditions_ask_the_interval_at_every_head_dim() -> None:
    assert Speedups({512: FASTER}).faster and not Speedups({512: FASTER, 2048: TIE}).faster
    assert Speedups({512: SLOWER}).slower and not Speedups({512: SLOWER, 2048: TIE}).slower
    assert Speedups({512: SLOWER, 2048: TIE}).not_faster and not Speedups({512: TIE, 2048: FASTER}).not_faster
    assert Speedups().faster is None and f"{Speedups()}" == "not measured"
    both = Speedups({512: FASTER, 2048: SLOWER})
    assert f"{both}" == "0.80–1.50×" and f"{both.slowest:slower}" == "25 %" and f"{Speedups():slower}" == "not measured"
    assert every(True, True) is True and every(True, None) is None and every(None, False) is False
    assert every(True, LIKELY) is LIKELY and every(LIKELY, None) is None and every(LIKELY, False) is False


def test_a_condition_is_likely_where_the_values_say_so_and_an_interval_does_not() -> None:
    wide, across_tie, beyond = Ratio(1.5, 0.9, 2.0), Ratio(1.01, 0.9, 1.2), Ratio(0.9, 0.8, 1.0)
    assert Speedups({512: FASTER, 2048: wide}).faster is LIKELY and not LIKELY
    assert Speedups({512: FASTER, 2048: across_tie}).faster is False  # a tie is not faster, however sure
    assert Speedups({512: across_tie}).not_slower is LIKELY and Speedups({512: across_tie}).not_faster is LIKELY
    assert Speedups({512: beyond}).slower is LIKELY and Speedups({512: wide}).slower is False
    assert findings.Shares({512: wide}).above(1) is LIKELY and findings.Shares({512: wide}).below(1) is False


def test_a_likely_finding_is_shown_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    ratio = Measured.ratio

    def wide(self: Measured, *asked: Any) -> Ratio | None:
        found = ratio(self, *asked)
        return found and found._replace(low=found.value / 3, high=3 * found.value)

    path = findings.NOTEBOOKS / "sinusoidal.ipynb"
    sure = {each.id: each for each in evaluate(path, REFERENCE)}
    monkeypatch.setattr(Measured, "ratio", wide)
    found = evaluate(path, REFERENCE)
    likely = [each for each in found if each.outcome == findings.PROBABLY]
    assert len(likely) > len(found) / 2
    for each in likely:
        assert each.text == sure[each.id].text + findings.UNSURE and not each.holds
    assert [line for line in broken(found) if line.startswith("sinusoidal-story is only likely: On an")]


def test_a_share_of_a_gap_is_what_an_ablation_closes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = Measured.load(REFERENCE, "ablation")
    found = findings.closed(ablation, "rope_v2", "rope_v2_float4", "rope_separate").at(512)
    problem = ablation.shapes("rope_v2")[512]
    times = (ablation.time(name, problem) for name in ("rope_v2", "rope_v2_float4", "rope_separate"))
    slow, less, fast = (time.us for time in times if time)
    share = (slow - less) / (slow - fast)
    assert found.by_hdim[512].value == pytest.approx(share, rel=0.02) and re.fullmatch(r"3[89] %", f"{found}")
    assert found.above(share - 0.05) and not found.above(share + 0.05)
    assert found.below(share + 0.05) and not found.below(share - 0.05)
    nothing = findings.closed(Measured.nothing(REFERENCE, "ablation"), "rope_v2", "rope_v2_float4", "rope_separate")
    assert nothing.above(0.5) is None and f"{nothing}" == "not measured"


def test_a_share_of_nan_is_of_the_version_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured.load(REFERENCE)
    online, fixed = "attention_online", "attention_online_fixed"
    nan, right = (findings.nan_shares(measured, name).at(512, 4096) for name in (online, fixed))
    assert f"{nan}" == "75–88 %" and nan.above(0.74) and not nan.above(0.76) and right.below(0.001)
    check, other = Measured.check, {online: fixed, fixed: online}
    monkeypatch.setattr(Measured, "check", lambda self, name, problem: check(self, other.get(name, name), problem))
    found = {each.id: each.holds for each in evaluate(findings.NOTEBOOKS / "baseline.ipynb", REFERENCE)}
    assert [name for name, holds in found.items() if not holds] == ["attention-story", "attention-online-wrong"]
    assert findings.nan_shares(Measured.nothing(REFERENCE, "log"), online).above(0.5) is None


def test_the_readme_says_what_its_two_chapters_found(front_page: list[Finding]) -> None:
    text, used = build.README.read_text(encoding="utf-8"), evaluate(USE, REFERENCE)
    table = front.five(Measured.load(REFERENCE))
    plot = style.Plot("front", Figure(), "", "ALT", pd.DataFrame(), "", "A name")
    made = front.readme(text, front_page, plot, table, used)
    committed = [line for line in text.splitlines() if not line.startswith("![")]
    assert [line for line in made.splitlines() if not line.startswith("![")] == committed
    targets = {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", made) if ":" not in target}
    assert {target for target in targets if not (build.README.parent / target).exists()} == set()
    with pytest.raises(DataError, match="lacks <!-- found -->"):
        front.readme("no marks", front_page, plot, table, used)
    with pytest.raises(DataError, match="y does not hold"):
        front.readme(text, front_page, plot, table, [Finding("y", findings.DIFFERS, "")])


def test_across_compares_versions_of_two_families_at_the_head_dims_that_both_have() -> None:
    measured = Measured.load(REFERENCE)
    found = fusion.across(measured, "rope_v4", "sinusoidal_separate_scalar").by_hdim
    us = {name: measured.time(name, measured.shapes(name)[2048]) for name in ("rope_v4", "sinusoidal_separate_scalar")}
    slow, fast = us["sinusoidal_separate_scalar"], us["rope_v4"]
    assert sorted(found) == [512, 2048] and slow and fast
    assert found[2048].value == pytest.approx(slow.us / fast.us, rel=0.01)  # of medians, and of each process


def test_each_problem_of_the_map_falls_under_one_rule() -> None:
    problems = Measured.load(REFERENCE, "map").problems("rope")
    rules = (short, few_heads, many_heads)
    assert {sum(map(bool, (rule(problem) for rule in rules))) for problem in problems} == {1}
    assert all(fuse.outcomes(Measured.load(REFERENCE, "map"), rule).problems for rule in rules)


def test_what_v7_saves_is_one_number_in_the_table_and_in_the_figure() -> None:
    measured = Measured.load(REFERENCE)
    drawn = rope_savings(measured).data
    for row in setup.saved(measured).rows:
        at = drawn[drawn["hdim"] == int(row[0])].set_index("timer")["saved_us"]
        for timer, told in (("launched", row[2]), ("device_warm", row[3])):
            assert float(told.replace("−", "-")) == pytest.approx(at[timer], abs=0.051), (row[0], timer)
