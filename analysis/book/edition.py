"""What this edition is called and where it is published, from book/settings.yml; and the files that say it to others.

CITATION.cff says how to cite the edition, codecheck.yml what a checker reproduces. `write` makes both.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from ..record.files import REFERENCE, ROOT, DataError

SETTINGS = ROOT / "book" / "settings.yml"
CITATION, CODECHECK = "CITATION.cff", "codecheck.yml"
LICENSE = "CC BY 4.0"
LICENSE_URL = "https://creativecommons.org/licenses/by/4.0/"
CODE_LICENSE = "MIT"
NOBODY = "the fused-positional-embeddings authors"  # while no maintainer is named
WRITEUP = {"title": "Fusing Positional Embeddings into Attention Kernels", "year": 2025}
WRITERS = ("Goel, Advay", "Yu, Dylan")
ABSTRACT = (
    "Every kernel version of the write-up in Numba CUDA, checked against float64, measured, and set beside the "
    "published numbers. Code under MIT; text, figures and data under CC BY 4.0."
)
EXACT = "equal to the last digit"
MANIFEST = (  # of codecheck.yml: a file, the command that makes it again, how long that takes, and what may differ
    ("data/figures.sha256", "make book", "2 minutes on two cores, no GPU", "the CSV of every figure, " + EXACT),
    ("book/figures/front.csv", "make book", "the same run", EXACT),
    (f"data/measured/{REFERENCE}/verdicts.csv", "make claims", "1 minute, no GPU", EXACT),
    ("data/counts.csv", "make counts", "no GPU; the time it takes is not recorded", EXACT),
    ("data/resources.csv", "make resources", "no GPU; the time it takes is not recorded", EXACT),
    (
        f"data/measured/{REFERENCE}/",
        "make gpu",
        "one NVIDIA H200; checks and times take 26 minutes, the time of the rest is not recorded",
        "speedups within their 95 % intervals, of which one in twenty may miss; times themselves are not compared",
    ),
)


@dataclass(frozen=True)
class Edition:
    """The settings. What is not filled in is empty."""

    title: str
    version: str
    date: str  # "2026-11-23"
    maintainers: tuple[str, ...]  # "Family name, Given name"
    url: str
    repository: str
    doi: str
    writeup: str

    @property
    def authors(self) -> str:
        """As BibTeX writes them."""
        return " and ".join(self.maintainers) or f"{{{NOBODY}}}"

    @property
    def year(self) -> str:
        return self.date[:4]

    def address(self, page: str) -> str:
        """The public address of a page, or nothing while the book is not hosted."""
        return f"{self.url.rstrip('/')}/{page}" if self.url else ""

    def source(self, path: str, commit: str) -> str:
        """The public address of a file or folder at a commit, or nothing while there is no repository."""
        return f"{self.repository.rstrip('/')}/tree/{commit}/{path}" if self.repository else ""


@functools.cache
def edition(settings: Path = SETTINGS) -> Edition:
    """Raises: DataError for a setting that is missing or unknown."""
    found = yaml.safe_load(settings.read_text(encoding="utf-8"))
    names = [field.name for field in fields(Edition)]
    if not isinstance(found, dict) or set(found) != set(names):
        raise DataError(f"{settings}: the settings are {', '.join(names)}")
    people = tuple(map(str, found.pop("maintainers") or ()))
    return Edition(maintainers=people, **{name: str(value or "") for name, value in found.items()})


def _people(names: tuple[str, ...]) -> list[dict[str, str]]:
    """Names as CITATION.cff has them."""
    keys = "family-names", "given-names"
    return [dict(zip(keys, map(str.strip, name.partition(",")[::2]))) for name in names] or [{"name": NOBODY}]


def _given(**values: Any) -> dict[str, Any]:
    """Without what is empty; a key that is no Python name is written with underscores."""
    return {name.replace("_", "-"): value for name, value in values.items() if value}


def citation(this: Edition) -> dict[str, Any]:
    """The content of CITATION.cff."""
    return {
        "cff-version": "1.2.0",
        "message": "If you use these measurements, figures or kernels, please cite this edition and the write-up.",
        "type": "software",
        "title": this.title,
        "authors": _people(this.maintainers),
        **_given(version=this.version, date_released=this.date, url=this.url, repository_code=this.repository),
        **_given(doi=this.doi, abstract=ABSTRACT, license=CODE_LICENSE),
        "keywords": ["attention", "rotary position embedding", "kernel fusion", "CUDA", "Numba", "reproducibility"],
        "references": [{"type": "report", **WRITEUP, "authors": _people(WRITERS), **_given(url=this.writeup)}],
    }


def codecheck(this: Edition) -> dict[str, Any]:
    """The content of codecheck.yml: what a checker reproduces, in which time, with which tolerance."""
    names = [{"name": " ".join(reversed(name.split(", ")))} for name in this.maintainers or (NOBODY,)]
    made = [
        {"file": file, "comment": f"`{command}`; {takes}; {differs}."} for file, command, takes, differs in MANIFEST
    ]
    return {
        "version": "https://codecheck.org.uk/spec/config/1.0/",
        "paper": {"title": this.title, "authors": names, **_given(reference=this.doi or this.url)},
        "manifest": made,
        **_given(repository=this.repository),
        "codechecker": [],
    }


def write(folder: Path = ROOT) -> None:
    """Write CITATION.cff and codecheck.yml."""
    for name, content in ((CITATION, citation(edition())), (CODECHECK, codecheck(edition()))):
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)
        head = "# Made by `make book` from book/settings.yml and analysis/book/edition.py.\n"
        (folder / name).write_text(head + text, encoding="utf-8")
