"""Every version has a page made from data, and every version of the log is told in its chapter."""

import csv
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from html import escape
from pathlib import Path

import nbformat
import pytest

from analysis.book import notebook
from analysis.book import pages as version_pages
from analysis.book.chapters import story
from analysis.book.pages.counted import COUNTERS, METRICS
from analysis.book.site import build
from analysis.book.site.place import Place
from analysis.measure import counters
from analysis.records import files, measured, published
from analysis.records.files import DataError
from analysis.verdicts import claims, facts
from kernels import VERSIONS, Unsupported
from kernels.version import Problem

GPU = "nvidia-h200"


LOG = ("log",)  # the study that the tests of a page read


@pytest.fixture(scope="module")
def records() -> version_pages.Records:
    return version_pages.Records(GPU, LOG)


@pytest.fixture(scope="module")
def pages(records: version_pages.Records, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All pages, as the build writes them from all studies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["analysis.book.pages.write"], "Records", lambda slug: records)
        written = version_pages.write(GPU, tmp_path_factory.mktemp("pages") / "versions")
    return {path.stem: path.read_text(encoding="utf-8") for path in written}


def unlabeled(text: str) -> str:
    """Without the names of columns that cells carry for phones."""
    return re.sub(r" data-label='[^']*'", "", text)


def code_of(name: str) -> str:
    cells = nbformat.read(build.NOTEBOOKS / f"{name}.ipynb", as_version=4).cells
    return "\n".join(cell.source for cell in cells)


# ---------------------------------------------------------------- which pages there are


def test_every_version_and_every_family_has_a_page_and_a_place_in_the_contents(pages: dict[str, str]) -> None:
    families = {version.family for version in VERSIONS.values()}
    assert set(pages) == set(VERSIONS) | families
    listed = [entry["file"] for family in version_pages.contents() for entry in (family, *family["sections"])]
    assert sorted(listed) == sorted(f"book/versions/{name}" for name in pages)


def test_a_version_that_is_registered_gets_a_page(
    records: version_pages.Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = replace(VERSIONS["rope_v7"], id="rope_v99", parent="rope_v7", change="nothing at all", title="A new one")
    monkeypatch.setitem(VERSIONS, "rope_v99", new)
    text = version_pages.page(records, new)
    assert text.startswith("# rope_v99\n\n**A new one**") and "Changes [`rope_v7`](rope_v7.md): nothing at all." in text
    assert "Not measured on the NVIDIA H200 yet." in text and "def attention(" in text and "rotate_tokens" in text
    (family,) = (entry for entry in version_pages.contents() if entry["file"] == "book/versions/rope")
    assert "book/versions/rope_v99" in [entry["file"] for entry in family["sections"]]
    assert "not measured" in version_pages.overview([*records.studies.values()], "rope")._repr_html_()


def test_a_link_to_a_version_that_is_not_there_fails(records: version_pages.Records) -> None:
    orphan = replace(VERSIONS["rope_v7"], parent="rope_v0")
    with pytest.raises(DataError, match="would link to 'rope_v0', which is no version"):
        version_pages.page(records, orphan)


def test_every_link_of_a_page_leads_to_a_page_or_a_claim(pages: dict[str, str]) -> None:
    known = {claim.id for claim in claims.load()}
    stated = set(published.load()["id"])
    for name, text in pages.items():
        beside = re.findall(r"\]\((\w+)\.md\)", text) + re.findall(r"'\.\./versions/(\w+)\.html'", text)
        assert beside and set(beside) <= set(pages), name
        assert set(re.findall(r"claims\.html#([^']+)'", text)) <= known, name
        assert set(re.findall(r"published\.html#([^']+)'", text)) <= stated, name


def test_the_build_puts_the_pages_below_their_chapter(tmp_path: Path) -> None:
    Place(tmp_path).write_contents()
    text = (Place(tmp_path).source / "_toc.yml").read_text(encoding="utf-8")
    before, _, below = text.partition("- file: book/chapters/versions\n")
    assert "book/versions/rope_v7" in below and "book/versions/" not in before


# ---------------------------------------------------------------- what a page says


def test_a_page_says_what_changed_how_it_went_and_what_was_published(records: version_pages.Records) -> None:
    text = version_pages.page(records, VERSIONS["rope_v4"])
    assert f"Changes [`rope_v3`](rope_v3.md): {VERSIONS['rope_v4'].change}." in text
    assert "*Source*: RoPE Fusion Implementation Log, V4, items 15-17." in text
    measured = records.studies["log"]
    problem = measured.shapes("rope_v4")[2048]
    for other in ("rope_separate", "rope_v3"):
        ratio = measured.ratio(other, "rope_v4", problem)
        assert ratio and f"{ratio.value:.2f}×<br><small>{ratio.low:.2f}–{ratio.high:.2f}</small>" in text
    taken, said = measured.time("rope_v4", problem), published.published("rope_v4", problem)
    assert taken and said and f"{taken.us:.1f} <small>" in text and f"{said.value:.3f}" in text
    for section in ("Measured", "Claims that name it", "Launches of one call", "Source", "Published"):
        assert f"\n## {section}\n" in text
    assert "\n-" in text.partition("```diff")[2] and "claims.html#C-10'" in text


def test_a_page_of_v8_names_the_cores_that_ran(records: version_pages.Records) -> None:
    evidence = version_pages.Records(GPU, ("beyond",))
    said = {name: version_pages.page(evidence, VERSIONS[name]) for name in ("rope_v8_portable", "rope_v8")}
    assert re.search(r"\nCore that ran on the NVIDIA H200: `portable` on \d+ problems\.\n", said["rope_v8_portable"])
    assert re.search(r"\nCore that ran on the NVIDIA H200: `wgmma` on \d+ problems", said["rope_v8"])
    assert "Core that ran" not in version_pages.page(records, VERSIONS["rope_v4"])


def test_a_version_that_does_not_fit_says_both_numbers(pages: dict[str, str]) -> None:
    with pytest.raises(Unsupported) as refusal:
        VERSIONS["attention_tensor_core_v1"](Problem("attention", 1, 4, seq_q=64, hdim=512))
    needed, limit = refusal.value.needed, refusal.value.allowed
    said = escape(f"needs {needed:,} B of shared memory, the log's limit is {limit:,} B")
    assert said in pages["attention_tensor_core_v1"]


def test_shapes_of_one_head_dim_follow_in_one_order() -> None:
    """They come from a set, whose order changes from one process to the next."""
    text = version_pages.page(version_pages.Records(GPU, ("fp16",)), VERSIONS["torch_sdpa_fp16"])
    checked = text.partition("\n## Checked\n")[2].partition("\n## ")[0]
    listed = re.findall(r">(\d+) <small>B \d+ H \d+ S (\d+)( causal)?<", checked)
    order = [(int(hdim), int(seq), causal != "") for hdim, seq, causal in listed]
    assert len(order) == 12 and order == sorted(order)


@pytest.mark.parametrize("name", ["rope_v7", "fp16_phase4", "attention_register_tiling"])
def test_declared_hazards_and_launches_are_those_of_the_plans(name: str, pages: dict[str, str]) -> None:
    plans, shown = version_pages.planned(name), unlabeled(pages[name])
    assert plans
    for plan in plans.values():
        for hazard in plan.hazards:
            assert escape(hazard.why) in pages[name]
    for problem in published.main_problems(plans):
        for launch in plans[problem].launches:
            assert f"<td class='number'>{launch.shared_bytes:,}</td>" in shown
            assert f"<td class='number'>{' × '.join(map(str, launch.grid))}</td>" in shown


def test_the_twin_of_a_build_differs_in_its_launches_alone(pages: dict[str, str]) -> None:
    diff = pages["rope_v2_fast_math"].partition("```diff\n")[2].partition("```")[0]
    changed = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert [line[0] for line in changed] == ["-", "+"] and changed[1] == "+" + changed[0][1:] + " fast-math"


def test_a_peer_shows_the_file_that_calls_it(pages: dict[str, str]) -> None:
    assert "scaled_dot_product_attention(" in pages["torch_sdpa"] and "Launches" not in pages["torch_sdpa"]


# ---------------------------------------------------------------- numbers come from data


Row = dict[str, str]


def altered(source: Path, target: Path, matches: Callable[[Row], bool], change: Callable[[Row], None]) -> None:
    """Copy a CSV with some of its rows changed."""
    with source.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    mine = [row for row in rows if matches(row)]
    assert mine
    for row in mine:
        change(row)
    with target.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def shape(row: Row) -> tuple[str, ...]:
    return row["hdim"], row["rotary_dim"], row["heads"], row["seq_q"]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a copy of what the pages are made from, in place of the original."""
    folder = tmp_path / GPU
    shutil.copytree(files.MEASURED / GPU, folder)
    for name in ("COUNTS", "RESOURCES"):
        source = getattr(files, name)
        if source.exists():
            shutil.copy(source, tmp_path)
        monkeypatch.setattr(f"analysis.book.pages.records.{name}", tmp_path / source.name)
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    for path in (*tmp_path.glob("*.csv"), *folder.glob("*.csv")):
        path.chmod(0o644)
    return tmp_path


def test_a_measured_time_changes_the_pages_that_show_it_and_no_others(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the intervals: how far runs are apart, pooled over all versions, stays what it was."""
    known = measured.pools(copied / GPU)
    for module in (measured, facts):
        monkeypatch.setattr(module, "pools", lambda folder: known)
    records = version_pages.Records(GPU, LOG)

    def matches(row: Row) -> bool:
        of = row["version"] == "rope_v3" and row["study"] == "log" and row["timer"] == "device_warm"
        return of and shape(row) == ("2048", "2048", "4", "64") and row["median_us"] != ""

    path = copied / GPU / "timings.csv"
    altered(path, path, matches, lambda row: row.update(median_us="7777.25"))
    names = ("rope_v3", "rope_v4", "rope_v5", "rope_v2")
    changed = version_pages.Records(GPU, LOG)
    before, after = ([version_pages.page(each, VERSIONS[name]) for name in names] for each in (records, changed))
    assert "7777.2 <small>± 0.0</small>" in after[0]
    assert [one == other for one, other in zip(before, after)] == [False, False, True, True]  # V4 is compared with V3


@pytest.mark.parametrize(
    ("table", "name", "matches", "change", "shown"),
    [
        (
            "resources.csv",
            "rope_v5",
            lambda row: row["target"] == "sm_89" and row["hdim"] == "2048",
            lambda row: row.update(registers="97", spill_bytes="4321"),
            "97 <small>× {blocks_per_sm}</small><br><small>spills 4,321</small>",
        ),
        (
            f"{GPU}/verdicts.csv",
            "rope_v4",
            lambda row: row["claim_id"] == "C-10",
            lambda row: row.update(verdict="refuted"),
            "below, shared memory and barriers cost more than powf did.</td>"
            "<td class='verdict'><span class='status wrong'>refuted",
        ),
        (
            f"{GPU}/checks.csv",
            "rope_v4",
            lambda row: row["study"] == "log" and row["hdim"] == "2048",
            lambda row: row.update(status="wrong", reason="a made-up reason"),
            "wrong</span> a made-up reason <small>at head dim 2048</small>",
        ),
    ],
    ids=["resources", "verdicts", "checks"],
)
def test_a_changed_row_changes_its_page(
    table: str,
    name: str,
    matches: Callable[[Row], bool],
    change: Callable[[Row], None],
    shown: str,
    copied: Path,
    records: version_pages.Records,
) -> None:
    def of(row: Row) -> bool:
        return matches(row) and row.get("version", name) == name

    rows: list[Row] = []
    altered(copied / table, copied / table, of, lambda row: (rows.append(row), change(row))[1])
    expected = shown.format(**rows[0])
    assert expected in unlabeled(version_pages.page(version_pages.Records(GPU, LOG), VERSIONS[name]))
    assert expected not in unlabeled(version_pages.page(records, VERSIONS[name]))


def test_what_is_shown_of_counts_and_counters_is_counted_and_read() -> None:
    assert {metric for metric, _, _ in METRICS} <= set(counters.METRICS)
    counted = [*(counter for counter, _, _ in COUNTERS), *(each for _, parts, _ in story.WORK for each in parts)]
    assert all(map(facts.COUNTER.fullmatch, counted))


def test_counts_and_counters_are_summed_over_the_launches(copied: Path) -> None:
    """Written here, so that it holds whatever has been counted."""
    problem = files.problem_columns(Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128))
    row = {"version": "rope_v7", **problem, "kernel": "attention", "source_hash": "0", "run": "r", "study": "log"}
    event = {**row, "target": "sm_90", "counter": "event.rotation"}
    columns = [column.name for column in files.SCHEMAS["counts"]]
    counted = [{**event, "launch": launch, "value": value} for launch, value in enumerate((1234, 100000))]
    files.write_table(copied / "counts.csv", "counts", [{name: one[name] for name in columns} for one in counted])
    active, moved = "sm__warps_active.avg.pct_of_peak_sustained_active", "dram__bytes_read.sum, cold"
    read = [(0, moved, 1e6), (1, moved, 2.5e6), (0, active, 11.0), (1, active, 47.5)]
    columns = [column.name for column in files.SCHEMAS["counters"]]
    profiled = [{**row, "launch": launch, "metric": metric, "value": value} for launch, metric, value in read]
    other = {**row, "study": "matched", "heads": 11, "kv_heads": 11}  # at the same head dim
    profiled.append({**other, "launch": 0, "metric": moved, "value": 8e6})
    files.write_table(
        copied / GPU / "counters.csv", "counters", [{name: one.get(name) for name in columns} for one in profiled]
    )
    text = unlabeled(version_pages.page(version_pages.Records(GPU, LOG), VERSIONS["rope_v7"]))
    assert "rotations of a pair</th><td class='number'>101,234</td>" in text
    assert "MB read from DRAM, caches flushed</th><td class='number'>3.5</td></tr>" in text
    assert "% of an SM's warps resident, last launch</th><td class='number'>47.5</td>" in text


# ---------------------------------------------------------------- the chapters


DOCUMENTS = tuple(" ".join(title.split(":")[0].split()[:2]) for title in published.DOCUMENTS)  # as `source` names them
CHAPTERS = {"attention": "baseline", "sinusoidal": "sinusoidal", "rope": "rope", "fp16": "fp16"}


@pytest.mark.parametrize("family", CHAPTERS)
def test_every_version_of_the_log_is_told_in_its_chapter(family: str) -> None:
    text = code_of(CHAPTERS[family])
    told = [
        v
        for v in VERSIONS.values()
        if v.family == family and not (v.ablation or v.control_of) and v.source.startswith(DOCUMENTS)
    ]
    assert told and [version.id for version in told if f'"{version.id}"' not in text] == []


def test_what_a_chapter_asks_for_and_is_not_there_fails(records: version_pages.Records) -> None:
    measured = records.studies["log"]
    with pytest.raises(DataError, match="there is no claim 'A-99'"):
        story.tested(measured, "A-01", "A-99")
    with pytest.raises(DataError, match="'rope_v4' has no lines from 'nobody wrote this'"):
        notebook.lines("rope_v4", "nobody wrote this", "key")
