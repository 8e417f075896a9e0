"""Where the book of a GPU is built: everything under `_build/<gpu>/`, so that one card's book never meets another's.

source/      what Jupyter Book takes: the executed chapters, the pages of the versions, and copies of what stays
html/        the book; the one before stands until the next is done
figures/     SVG, PNG and CSV of each figure
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import yaml

from ...evidence import Evidence
from ...evidence.origin import measured
from ...measure.provenance import commit
from ...record.files import BUILD, ROOT
from .. import pages
from ..edition import CODE_LICENSE, LICENSE, LICENSE_URL, Edition, edition

CONFIG, TOC = "_config.yml", "_toc.yml"
CHAPTERS, VERSIONS = "book/chapters", "book/versions"
VERSION_PAGES = "book/chapters/versions"  # the chapter that has a page of every version below it
MADE = ("book/figure-index", "book/artifact")  # pages that are made from the executed chapters
MADE_UP = "<b>Made up, for tests.</b> No card measured these numbers."
KEPT = ("book/_static", "book/references.bib")  # beside the pages that are not made: those of _toc.yml


def _yaml(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def contents() -> list[str]:
    """The pages of _toc.yml, the front page first."""
    toc = _yaml(TOC)
    return [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]


def chapters() -> list[str]:
    """The names of the pages that are notebooks."""
    return [Path(page).name for page in contents() if page.startswith(f"{CHAPTERS}/")]


def footer(e: Evidence, code: str = "", this: Edition | None = None) -> str:
    """The foot of every page as HTML: version, commit (by default of the repository), card, date and licence."""
    this = this or edition()
    dates = sorted({run.date for run in measured(e, "log").runs})
    places = {"source": this.repository, "DOI": f"https://doi.org/{this.doi}" if this.doi else ""}
    return " ".join(
        [
            f"Version {this.version} of {this.date}, commit {code or commit()}.",
            f"{e.card}: measured {dates[-1]}." if dates else f"{e.card}.",
            f'Text, figures and data: <a href="{LICENSE_URL}">{LICENSE}</a>. Code: {CODE_LICENSE}.',
            *(f'<a href="{escape(address)}">{words}</a>' for words, address in places.items() if address),
        ]
    )


@dataclass(frozen=True)
class Place:
    """The folders of one GPU's book."""

    folder: Path

    @classmethod
    def of(cls, gpu: str) -> Place:
        return cls(BUILD / gpu)

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def html(self) -> Path:
        return self.folder / "html"

    @property
    def chapters(self) -> Path:
        return self.source / CHAPTERS

    @property
    def versions(self) -> Path:
        return self.source / VERSIONS

    def stage(self, e: Evidence) -> None:
        """Put beside what was made what is the same for every card, at the same relative places.

        _toc.yml gets the pages of the versions below their chapter; _config.yml the footer, the address of the book,
        and a banner where the card is made up.
        """
        toc, config = _yaml(TOC), _yaml(CONFIG)
        for chapter in (chapter for part in toc["parts"] for chapter in part["chapters"]):
            if chapter["file"] == VERSION_PAGES:
                chapter["sections"] = pages.contents()
        config["html"] |= {"extra_footer": footer(e), "baseurl": edition().url}
        if e.gpu.get("made_up"):
            config["sphinx"]["config"]["html_theme_options"]["announcement"] = MADE_UP
        self.source.mkdir(parents=True, exist_ok=True)
        for name, content in ((TOC, toc), (CONFIG, config)):
            (self.source / name).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        written = [page for page in contents() if not page.startswith(f"{CHAPTERS}/") and page not in MADE]
        for name in (*KEPT, *(f"{page}.md" for page in written)):
            target = self.source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, dirs_exist_ok=True)
            else:
                shutil.copyfile(ROOT / name, target)

    def publish(self, built: Path) -> None:
        """Make `built` the book; the one before goes at once."""
        before = self.folder / "html.before"
        shutil.rmtree(before, ignore_errors=True)
        if self.html.exists():
            os.replace(self.html, before)
        os.replace(built, self.html)
        shutil.rmtree(before, ignore_errors=True)
