"""Where the book of a GPU is built: everything under `_build/<gpu>/`, so that one card's book never meets another's.

source/      what Jupyter Book takes: the executed chapters, the pages of the versions, and copies of what stays
html/        the book; the one before stands until the next is done
figures/     SVG, PNG and CSV of each figure
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...records.files import BUILD, ROOT
from ...records.measured import Measured
from .. import pages
from ..edition import edition
from .imprint import footer

CONFIG, TOC = "_config.yml", "_toc.yml"
CHAPTERS, VERSIONS = "book/chapters", "book/versions"
VERSION_PAGES = "book/chapters/versions"  # the chapter that has a page of every version below it
MADE = ("book/figure-index", "book/artifact")  # pages that are made from the executed chapters
MADE_UP = "<b>Made up, for tests.</b> No card measured these numbers."
KEPT = ("book/_static", "book/references.bib")  # beside the pages that are not made: those of _toc.yml


def _toc() -> dict[str, Any]:
    return yaml.safe_load((ROOT / TOC).read_text(encoding="utf-8"))


def contents() -> list[str]:
    """The pages of _toc.yml, the front page first."""
    toc = _toc()
    return [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]


def chapters() -> list[str]:
    """The names of the pages that are notebooks."""
    return [Path(page).name for page in contents() if page.startswith(f"{CHAPTERS}/")]


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

    @property
    def key(self) -> Path:
        """A digest of what the chapters were executed from."""
        return self.folder / "executed-from.txt"

    @property
    def pages_key(self) -> Path:
        """A digest of what the pages were rendered from."""
        return self.folder / "rendered-from.txt"

    def write_contents(self) -> None:
        """_toc.yml with the pages of the versions, which are made from data, below their chapter."""
        toc = _toc()
        for part in toc["parts"]:
            for chapter in part["chapters"]:
                if chapter["file"] == VERSION_PAGES:
                    chapter["sections"] = pages.contents()
        self.source.mkdir(parents=True, exist_ok=True)
        (self.source / TOC).write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")

    def write_config(self, evidence: Measured) -> None:
        """_config.yml with the footer of a card's pages, a banner where it is made up, and the address of the book."""
        config = yaml.safe_load((ROOT / CONFIG).read_text(encoding="utf-8"))
        config["html"] |= {"extra_footer": footer(evidence), "baseurl": edition().url}
        if evidence.gpu.get("made_up"):
            config["sphinx"]["config"]["html_theme_options"]["announcement"] = MADE_UP
        (self.source / CONFIG).write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")

    def stage(self, evidence: Measured) -> None:
        """Put beside what was made what is the same for every card, at the same relative places."""
        self.write_contents()
        self.write_config(evidence)
        made = [page for page in contents() if page.startswith(f"{CHAPTERS}/") or page in MADE]
        written = [f"{page}.md" for page in contents() if page not in made]
        for name in (*KEPT, *written):
            _copy(ROOT / name, self.source / name)

    def publish(self, built: Path, key: str) -> None:
        """Make `built` the book, and record what it was rendered from; the one before goes at once."""
        before = self.folder / "html.before"
        shutil.rmtree(before, ignore_errors=True)
        self.pages_key.unlink(missing_ok=True)
        if self.html.exists():
            os.replace(self.html, before)
        os.replace(built, self.html)
        self.pages_key.write_text(key, encoding="utf-8")
        shutil.rmtree(before, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
