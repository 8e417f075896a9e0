"""Tables and figures show what was measured beside what was published, and say what is missing."""

import re
from pathlib import Path

from analysis.evidence import Evidence
from analysis.models.moves import example
from analysis.record.files import DATA, ROOT, read_rows
from analysis.tables import defects, reasons, versions
from analysis.tables.surprises import seen, surprises
from analysis.tables.table import Table
from kernels import VERSIONS
from tests.evidence.made_up import TWO, add_run


def test_version_shows_what_was_published_and_how_the_two_compare(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([20.0, 21.0], [10.0, 10.0]))))
    ((_, table),) = versions.times(Evidence.load(folder), VERSIONS["rope_v7"])
    html = table._repr_html_()
    assert "0.047" in html and "1.45×" in html and "2.05×" in html


def test_version_that_could_not_run_says_why() -> None:
    e = Evidence.load("nvidia-h200")
    refused = e.study("log").checks.query("status == 'infeasible'")
    assert len(refused)
    for version, rows in refused.groupby("version"):
        told = {text for _, text, _ in reasons.reasons(e, VERSIONS[version])[0]}
        assert set(rows["reason"]) <= told


def test_surprises_name_files_that_reproduce_them() -> None:
    rows = read_rows(DATA / "surprises.csv", "surprises")
    told = [seen(row["section"]) for row in rows if row["section"]]
    assert len(surprises().rows) + len(surprises(tools=True).rows) + len(told) == len(rows) > 0
    assert [path for row in rows for path in row["source"].split() if not (ROOT / path).exists()] == []


def test_words_of_neighbouring_cells_stay_apart_for_a_search() -> None:
    """A search index strips tags and puts nothing in their place."""
    html = Table(("GPU", "SMs"), [("RTX 4090", "128"), ("A100<br>80 GB", "108")])._repr_html_()
    assert {"4090", "128", "A100", "80"} <= set(re.sub(r"<[^<]+?>", "", html).split())


def test_refusals_that_differ_in_numbers_alone_are_one() -> None:
    texts = [f"seq_q is {n}; it must be at most 8 in decode" for n in (9, 1038, 15, 67, 24)]
    assert reasons.merged(texts) == "seq_q is 9 to 1038; it must be at most 8 in decode"
    assert reasons.merged(["tiles of 7 keys", "tiles of 32 keys"]) == "tiles of 7, 32 keys"


def test_table_of_defects_names_each_version_of_the_documents_that_declares_one() -> None:
    html = defects()._repr_html_()
    for version in (each for each in VERSIONS.values() if each.of_log and each.built_from == each.id):
        plan = example(version)
        assert not (plan.defect or plan.hazards) or f"versions/{version.id}.html" in html, version.id
