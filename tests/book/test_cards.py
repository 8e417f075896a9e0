"""A book for any card is true: the chapters of made-up cards, executed here, and two of their books in full.

`make test` reads what a small card with the documents' study alone gets; `make test-deep` all cards; `make test-cards`
renders two books.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from analysis.book import pages as version_pages
from analysis.book.site import build
from analysis.book.site.place import CHAPTERS, VERSIONS, Place, chapters
from analysis.book.table import microseconds
from analysis.records.files import DATA, REFERENCE, ROOT, DataError, read_json, read_table
from analysis.records.measured import Measured
from analysis.records.schema import SCHEMAS
from analysis.verdicts import claims
from kernels import VERSIONS as ALL
from kernels import Problem, Unsupported
from tests.cards import ANOTHER, CARDS, KINDS, Kind, write
from tests.cards.reading import Chapter, measured_in, read_chapter, words
from tests.cards.rows import Taken
from tests.cards.truth import (
    CELL,
    names_of_the_reference,
    never_ran,
    numbers_of_the_reference,
    own_times,
    page_of_a_version_that_never_ran,
    right_though_it_never_ran,
    statuses,
    without_a_number,
)

SMALL = "7.5 log"
COMPARING = "compare"  # the chapter that reads other cards
QUICK = ("rope", "v8", "use")  # chapters of what a small card takes least of
RENDERED = ("12.0", SMALL)
WORDS = {"error": "failed"}
WORDS_OF = re.compile("unsupported|infeasible|failed|not measured")
FAMILIES = {"attention": "baseline", "sinusoidal": "sinusoidal", "rope": "rope", "fp16": "fp16"}


@dataclass(frozen=True)
class Read:
    """What was read of a card's book: its measurements, chapters and pages of the versions; and what that opened."""

    kind: Kind
    folder: Path
    chapters: dict[str, Chapter]
    versions: dict[str, str]
    opened: frozenset[str]

    @property
    def pages(self) -> dict[str, str]:
        versions = {f"versions/{name}": text for name, text in self.versions.items()}
        return {name: chapter.text for name, chapter in self.chapters.items()} | versions


OPENED: list[str] = []
sys.addaudithook(lambda event, given: OPENED.append(str(given[0])) if event == "open" else None)


def read(name: str, folder: Path, only: tuple[str, ...]) -> Read:
    """Write a card and read its book."""
    kind = KINDS[name]
    place = kind.write(folder / "data")
    slug = place.name
    with measured_in(folder / "data", folder / "built"):
        OPENED.clear()
        found = {each: read_chapter(build.NOTEBOOKS / f"{each}.ipynb", slug) for each in only if each != COMPARING}
        written = version_pages.write(slug, folder / "versions")
        opened = frozenset(OPENED)
        if COMPARING in only:
            found[COMPARING] = read_chapter(build.NOTEBOOKS / f"{COMPARING}.ipynb", slug)
    return Read(kind, place, found, {path.stem: path.read_text(encoding="utf-8") for path in written}, opened)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Read:
    return read(SMALL, tmp_path_factory.mktemp("small"), QUICK)


@pytest.fixture(scope="module", params=[name for name in KINDS if name not in RENDERED])
def card(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Read:
    return read(request.param, tmp_path_factory.mktemp("card"), tuple(chapters()))


# ---------------------------------------------------------------- the made-up cards themselves


def test_a_made_up_card_says_so_and_is_read_like_a_measured_one(small: Read) -> None:
    gpu = read_json(small.folder / "gpu.json")
    assert gpu["made_up"] is True and gpu["name"].startswith("Made-up")
    assert set(gpu["ceilings"]) == set(read_json(DATA / "measured" / REFERENCE / "gpu.json")["ceilings"])
    for path in small.folder.glob("*.csv"):
        assert len(read_table(path, path.stem)) and path.stem in SCHEMAS
    assert set(Measured.read(small.folder).checks["status"]) == {"ok", "wrong", "infeasible", "unsupported"}


def test_what_a_card_refuses_is_its_own(small: Read) -> None:
    assert small.folder.name == "made-up-7-5"
    assert any("ok" in found for found in statuses(small.folder)["rope_v7"].values())
    problem = Problem("attention", seq_q=7, hdim=36)
    launches = ALL["attention_async_double_buffer"](problem, "sm_75").launches
    with pytest.raises(Unsupported, match=r"of compute capability 8\.0, this GPU has sm_75"):
        Taken(CARDS["7.5"]).require("attention_async_double_buffer", launches)
    Taken(CARDS["8.0"]).require("attention_async_double_buffer", launches)


def test_nothing_made_up_is_written_below_data(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing made up may lie"):
        write("8.9", DATA / "measured")
    with pytest.raises(ValueError, match=r"no made-up card is called '9\.9'; known: 7\.5"):
        write("9.9", tmp_path)
    assert not any(read_json(path).get("made_up") for path in DATA.rglob("gpu.json"))
    assert not any(card.slug == REFERENCE for card in CARDS.values())


# ---------------------------------------------------------------- what is true of every card


def is_true(found: Read) -> None:
    assert without_a_number(found.pages) == []
    assert list(right_though_it_never_ran(found.pages, found.folder)) == []
    absent = [name for name in never_ran(found.folder) if name in found.versions]
    wrong = {name: page_of_a_version_that_never_ran(found.versions[name]) for name in absent}
    assert {name: each for name, each in wrong.items() if each} == {}
    own = own_times(found.folder)
    assert numbers_of_the_reference(found.pages, own) == []
    assert any(CELL.search(words(text)) for text in found.pages.values())  # there are times to find
    for chapter in found.chapters.values():
        for each in chapter.findings:
            assert each.outcome not in ("holds", "likely") or "not measured" not in each.text, each
    if found.kind.card != ANOTHER:
        assert names_of_the_reference(found.pages) == []


def reads_nothing_of_the_reference(found: Read) -> None:
    """But its gpu.json, which says whether this is its card."""
    below = str(DATA / "measured" / REFERENCE)
    assert {path for path in found.opened if path.startswith(below)} <= {f"{below}/gpu.json"}


def tells_apart(found: Read) -> None:
    """A family's chapter has a word for each of the log's versions that ran nowhere."""
    by_version, absent = statuses(found.folder), set(never_ran(found.folder))
    for family, chapter in FAMILIES.items():
        if chapter not in found.chapters:
            continue
        said = words(found.chapters[chapter].shown, code=False)
        for name, version in ALL.items():
            if version.of_log and version.family == family and name in absent:
                met = {each for one in by_version[name].values() for each in one} or {"not measured"}
                assert {WORDS.get(each, each) for each in met} & set(WORDS_OF.findall(said)), (chapter, name, met)


def test_the_chapters_of_a_small_card_are_true(small: Read) -> None:
    is_true(small)


def test_a_book_reads_nothing_of_the_reference(small: Read) -> None:
    reads_nothing_of_the_reference(small)


def test_the_chapters_of_a_small_card_tell_unsupported_and_infeasible(small: Read) -> None:
    tells_apart(small)
    assert "not measured" in words(small.chapters["rope"].shown + small.chapters["v8"].shown).lower()


def test_marked_words_are_the_references_and_others_are_not() -> None:
    marked = "<p>A <b class='reference-card'>card <i>of an H200</i><br></b> here</p><pre>H200</pre>"
    assert words(marked, code=False) == "A here" and words(marked) == "A here H200"
    assert names_of_the_reference({"p": marked}) == []
    assert names_of_the_reference({"p": "<img alt='on an H200'>"}) == ["p: on an H200"]


def test_a_time_of_the_reference_is_noticed() -> None:
    measured = Measured.read(DATA / "measured" / REFERENCE)
    problem = measured.shapes("rope_v7")[8192]
    cell = microseconds(measured.time("rope_v7", problem, "launched"))
    assert numbers_of_the_reference({"p": f"<td>{cell}</td>"})


def test_verdicts_are_computed_where_none_are_recorded_or_these_are_older(small: Read, tmp_path: Path) -> None:
    assert not (small.folder / "verdicts.csv").exists()
    with measured_in(small.folder.parent, tmp_path):
        rows = claims.verdicts_of(small.folder.name)
        assert {row["verdict"] for row in rows} >= {"undecided"}
        (kept,) = tmp_path.glob("*/verdicts-*.csv")
        assert len(read_table(kept, "verdicts")) == len(rows)
    assert not (small.folder / "verdicts.csv").exists()  # it is the measurer's to record them


# ---------------------------------------------------------------- every card


@pytest.mark.deep
def test_the_chapters_of_every_card_are_true(card: Read) -> None:
    is_true(card)
    reads_nothing_of_the_reference(card)


@pytest.mark.deep
def test_the_chapters_of_every_card_tell_what_it_lacks(card: Read) -> None:
    tells_apart(card)
    if card.kind.gaps:
        assert "not measured" in words(card.chapters["rope"].shown)


@pytest.mark.deep
def test_another_card_of_the_references_model_differs_and_gets_its_own_name(card: Read) -> None:
    findings = [each for chapter in card.chapters.values() for each in chapter.findings]
    assert findings and not all(each.holds for each in findings)
    if card.kind.card == ANOTHER:
        assert {each.outcome for each in findings} >= {"holds", "differs"}
        assert "Differs from the reference" in "".join(chapter.shown for chapter in card.chapters.values())


# ---------------------------------------------------------------- two books in full


@pytest.fixture(scope="module", params=RENDERED)
def book(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kind, Path, Path]]:
    kind = KINDS[request.param]
    folder = kind.write(tmp_path_factory.mktemp("data"))
    command = ("--data", str(folder.parent), "build", "--gpu", folder.name, "--strict")
    done = subprocess.run((sys.executable, "-m", "analysis", *command), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    yield kind, folder, Place.of(folder.name).html


@pytest.mark.cards
def test_a_book_of_another_card_is_rendered_and_true(book: tuple[Kind, Path, Path]) -> None:
    kind, folder, html = book
    paths = [path for path in html.rglob("*.html") if "_static" not in path.parts]
    assert len(paths) > len(ALL) and {CHAPTERS.rpartition("/")[2], VERSIONS.rpartition("/")[2]} <= {
        path.parent.name for path in paths
    }
    pages = {}
    for path in paths:
        main = re.search(r"<article\b.*?</article>", path.read_text(encoding="utf-8"), re.DOTALL)
        pages[str(path.relative_to(html))] = main[0] if main else ""
    assert names_of_the_reference(pages) == []
    assert numbers_of_the_reference(pages, own_times(folder)) == []
    assert list(right_though_it_never_ran(pages, folder)) == []
    assert without_a_number(pages) == []
    assert kind.card in pages[f"{CHAPTERS}/index.html"]


@pytest.mark.cards
def test_a_book_of_another_card_leaves_the_committed_files_alone(book: tuple[Kind, Path, Path]) -> None:
    changed = subprocess.run(
        ("git", "status", "--porcelain", "book", "README.md", "data"), cwd=ROOT, capture_output=True
    )
    assert changed.stdout == b""


def test_a_folder_without_the_documents_study_says_so(tmp_path: Path) -> None:
    folder = write("12.0", tmp_path, ("host",), ("counters", "shapes", "sanitizers", "op", "verdicts"))
    with measured_in(tmp_path, tmp_path / "built"), pytest.raises(DataError, match="no run of study 'log' is complete"):
        build.load(folder.name)
