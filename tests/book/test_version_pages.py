"""Pages of the versions: one for each version of the log and of V8's family, with what changes one thing of it."""

import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from analysis.book import pages
from analysis.book.chapters import story
from analysis.book.pages import counted
from analysis.book.pages.records import totals
from analysis.book.pages.write import family_page
from analysis.measure import counters
from analysis.records import files, published
from analysis.records.files import REFERENCE, DataError
from analysis.records.measured import Measured
from analysis.tables.table import address, page_of
from analysis.verdicts import facts
from kernels import VERSIONS, Problem

STUDIES = ("log", "ablation", "fp16", "beyond")
ONE_EACH = ("attention_register_tiling", "sinusoidal_v5", "rope_v7", "fp16_phase4", "alibi_v1", "learned_v1")


@pytest.fixture(scope="module")
def records() -> pages.Records:
    return pages.Records(REFERENCE, STUDIES)


def test_each_version_stands_on_one_page_that_there_is() -> None:
    listed = [entry["file"] for family in pages.contents() for entry in (family, *family["sections"])]
    assert len(listed) == len(set(listed))
    assert {f"book/versions/{page_of(name)}" for name in VERSIONS} == {*listed}
    assert page_of("control_rope_v7_no_break") == "rope_v7" and page_of("torch_sdpa") == "attention"
    assert address("rope_v2_fast_math") == "rope_v2.html#rope_v2_fast_math" and address("rope_v8") == "rope_v8.html"


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_page_has_what_was_measured_checked_and_declared(name: str, records: pages.Records) -> None:
    text = re.sub(r" data-label='[^']*'", "", pages.page(records, VERSIONS[name]))
    version, plans = VERSIONS[name], pages.planned(name)
    for study, problems in records.taken(name).items():
        for problem in problems:
            taken = records.studies[study].time(name, problem)
            assert not taken or f"{taken.us:.1f} <small>± {(taken.high - taken.low) / 2:.1f}" in text, problem
            ratio = records.studies[study].ratio(version.baseline, name, problem) if version.baseline else None
            assert not ratio or f"{ratio.value:.2f}×<br><small>{ratio.low:.2f}–{ratio.high:.2f}</small>" in text
    for plan in plans.values():
        assert all(escape(hazard.why) in text for hazard in plan.hazards)
    for problem in published.main_problems(plans):
        for launch in plans[problem].launches:
            assert f"<td class='number'>{' × '.join(map(str, launch.grid))}" in text
    for row in published.load().query("version == @name")["locator"]:
        assert escape(row) in text
    for other in (each for each in VERSIONS if page_of(each) == name and each != name):
        assert f"<div id='{other}'></div>" in text and escape(VERSIONS[other].title) in text


def test_peers_stand_on_the_page_of_their_family(records: pages.Records) -> None:
    text = family_page(records, "attention")
    for name in records.studies["log"].versions("attention", peers=True):
        assert f"<div id='{name}'></div>" in text


def test_a_version_that_is_registered_gets_a_page(records: pages.Records, monkeypatch: pytest.MonkeyPatch) -> None:
    new = replace(VERSIONS["rope_v7"], id="rope_v99", parent="rope_v7", title="A new one")
    monkeypatch.setitem(VERSIONS, "rope_v99", new)
    text = pages.page(records, new)
    assert text.startswith("# rope_v99\n\n**A new one**") and "Not measured on the NVIDIA H200 yet." in text
    with pytest.raises(DataError, match="would link to 'rope_v0', which is no version"):
        pages.page(records, replace(new, parent="rope_v0"))


def test_what_is_shown_of_counts_and_counters_is_counted_and_read() -> None:
    assert {metric for metric, _, _ in counted.METRICS} <= set(counters.METRICS)
    shown = [*(counter for counter, _, _ in counted.COUNTERS), *(each for _, parts, _ in story.WORK for each in parts)]
    assert all(map(facts.COUNTER.fullmatch, shown))


def test_counts_and_counters_are_summed_over_the_launches(tmp_path: Path) -> None:
    problem = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)
    row = {"version": "rope_v7", **files.problem_columns(problem), "kernel": "x", "source_hash": "0", "run": "r"}
    row |= {"study": "log"}
    active, moved = "sm__warps_active.avg.pct_of_peak_sustained_active", "dram__bytes_read.sum, cold"
    read = [(0, moved, 1e6), (1, moved, 2.5e6), (0, active, 11.0), (1, active, 47.5)]
    columns = [column.name for column in files.SCHEMAS["counters"]]
    row = {**dict.fromkeys(columns), **row}
    rows = [{**row, "launch": launch, "metric": metric, "value": value} for launch, metric, value in read]
    files.write_table(tmp_path / "counters.csv", "counters", rows)
    frame = files.with_problems(files.parsed(tmp_path / "counters.csv", "counters"))
    found = totals(frame, "metric")
    assert found == {problem: {moved: 3.5e6, active: 47.5}}


def test_a_claim_that_a_chapter_names_and_is_not_there_fails() -> None:
    with pytest.raises(DataError, match="there is no claim 'A-99'"):
        story.tested(Measured.load(REFERENCE), "A-01", "A-99")
