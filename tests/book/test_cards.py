"""A book for any card is true: that of a made-up card with gaps, errors and refusals is built, and its pages read."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from statistics import geometric_mean

import numpy as np
import pytest

from analysis import findings
from analysis.book import build
from analysis.evidence import Evidence
from analysis.findings import BADGES
from analysis.record import files, records
from analysis.record.files import BUILD, DATA, MEASURED, REFERENCE, ROOT, DataError, known_gpus, read_json
from analysis.studies import STUDIES
from analysis.tables.table import page_of
from tests.cards import REFUSED, write

NAME = re.compile(r"\bNVIDIA H100\b|nvidia-h100", re.IGNORECASE)
SHOWN = re.compile(r"<(table|figcaption)\b.*?</\1>", re.DOTALL)  # the card's; prose is the reference's, and says so
NO_NUMBER = re.compile(r"(?<![\w`'-])(?:nan|None)(?![\w`'])|\bno number\b|\bKeyError\b")
CELL = re.compile(r"\d[\d,]*\.\d ± \d+\.\d")
RIGHT = re.compile(r"status ok[^>]*>(?!confirmed)")  # a badge of what ran; "confirmed" is of what is counted without it
ROW = re.compile(r"<tr\b[^>]*><th\b(.*?)</th>(.*?)</tr>", re.DOTALL)
FIGURES = 5  # digits of a time and its spread, from which on they are not the same by chance
COMMAND = [sys.executable, "-m", "analysis"]


def words(html: str) -> str:
    """The text of a page about its card: no code, and nothing that is marked as the reference's."""
    html = re.sub(r"<(pre|script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    html = re.sub(r"<(\w+)[^>]*class=.reference-card.*?</\1>", "", html, flags=re.DOTALL)
    read = re.findall(r"(?:alt|title|aria-label)=(?:'([^']*)'|\"([^\"]*)\")", html)
    return " ".join(unescape(" ".join([re.sub("<[^>]+>", " ", html), *map(" ".join, read)])).split())


def times(folder: Path) -> set[str]:
    """Times of a card with their spreads, as a table writes them."""
    found = set()
    for study in {row["study"] for row in records(folder, "runs") if row["complete"]} & {*STUDIES}:
        measured = Evidence.load(folder).study(study)
        for name, problem in set(zip(measured.timings["version"], measured.timings["problem"])):
            for timer in measured.timings["timer"].dropna().unique():
                taken = measured.medians(name, problem, timer)
                taken = taken[~np.isnan(taken)]
                if len(taken):
                    found.add(f"{geometric_mean(taken):.1f} ± {(taken.max() - taken.min()) / 2:.1f}")
    return {cell for cell in found if sum(map(str.isdigit, cell)) >= FIGURES}


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("8.9", tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def pages(card: Path) -> Iterator[dict[str, str]]:
    """The articles of its book, by their places."""
    command = [*COMMAND, "--data", str(card.parent), "build", "--gpu", card.name, "--strict"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    html = BUILD / card.name / "html"
    found = {}
    for path in sorted(html.glob("book/**/*.html")):
        article = re.search(r"<article\b.*?</article>", path.read_text(encoding="utf-8"), re.DOTALL)
        found[str(path.relative_to(html / "book"))] = article[0] if article else ""
    yield found


@pytest.mark.cards
def test_no_table_has_the_reference_s_name_and_no_page_a_time_of_its_card(card: Path, pages: dict[str, str]) -> None:
    text = {page: words(html) for page, html in pages.items()}
    shown = {page: words(" ".join(found[0] for found in SHOWN.finditer(html))) for page, html in pages.items()}
    assert {page: found[0] for page, said in shown.items() if (found := NAME.search(said))} == {}
    foreign = times(DATA / "measured" / REFERENCE) - times(card)
    assert {page: hit for page, said in text.items() if (hit := foreign & set(CELL.findall(said)))} == {}
    assert sum(len(CELL.findall(said)) for said in text.values()) > 1000


@pytest.mark.cards
def test_version_that_did_not_run_is_never_called_right(card: Path, pages: dict[str, str]) -> None:
    assert {page: found[0] for page, html in pages.items() if (found := NO_NUMBER.search(words(html)))} == {}
    for page, html in pages.items():
        for first, cells in ROW.findall(html):
            for name in set(re.findall(r"versions/\w+\.html#?(?:\w*)'[^>]*><code>([^/]+)</code>", first)):
                if name.replace("<wbr>", "") in REFUSED:
                    assert not RIGHT.search(cells), (page, name)
    for name in REFUSED:
        told = pages[f"versions/{page_of(name)}.html"].partition("Claims that name it")[0]
        assert "unsupported" in told or "does not run" in told, name
        assert not CELL.search(words(told)), name
    shown = words("".join(pages.values()))
    assert all(word in shown for word in ("unsupported", "failed", "not measured", "infeasible"))


@pytest.mark.cards
def test_each_finding_has_the_sentence_of_the_reference_and_a_badge(card: Path, pages: dict[str, str]) -> None:
    html = "".join(pages.values())
    badges = {word: html.count(f">{word}</span>") for word in BADGES}
    assert all(badges[word] for word in BADGES if word != findings.OPEN) and sum(badges.values()) > len(findings.load())
    assert f"{findings.load()['front-wave'].home.numbers['alone']} as fast" in unescape(pages["chapters/index.html"])


@pytest.mark.cards
def test_book_of_another_card_leaves_the_committed_files_alone(pages: dict[str, str]) -> None:
    changed = ("git", "status", "--porcelain", "book", "README.md", "data")
    assert subprocess.run(changed, cwd=ROOT, capture_output=True).stdout == b""


def test_nothing_made_up_lies_among_the_measurements() -> None:
    with pytest.raises(ValueError, match="nothing made up may lie"):
        write("8.9", MEASURED)
    assert not any(read_json(MEASURED / slug / "gpu.json").get("made_up") for slug in known_gpus())


def test_folder_without_the_documents_study_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    with pytest.raises(DataError, match="no run of study 'log' is complete"):
        build.build(write("8.9", tmp_path, ("host",)).name)
