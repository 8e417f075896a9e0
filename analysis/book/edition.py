"""What this edition is called and where it is published: CITATION.cff and book/settings.yml, and nowhere else."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..record.files import ROOT, DataError

CITATION, SETTINGS = ROOT / "CITATION.cff", ROOT / "book" / "settings.yml"
PLACES = ("url", "repository", "doi")  # of settings.yml; what is not published yet is empty
LICENSE = "CC BY 4.0"
LICENSE_URL = "https://creativecommons.org/licenses/by/4.0/"
CODE_LICENSE = "MIT"


@dataclass(frozen=True)
class Edition:
    """`authors` as BibTeX writes them; `date` is `"2026-11-23"`; of the places, those that there are not are empty."""

    title: str
    authors: str
    version: str
    date: str
    url: str
    repository: str
    doi: str

    @property
    def year(self) -> str:
        return self.date[:4]

    def address(self, page: str) -> str:
        """The public address of a page, or nothing while the book is not hosted."""
        return f"{self.url.rstrip('/')}/{page}" if self.url else ""


def _author(author: dict[str, str]) -> str:
    return f"{author['family-names']}, {author['given-names']}" if "family-names" in author else f"{{{author['name']}}}"


def _read(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise DataError(f"{path}: not a mapping")
    return found


@functools.cache
def edition(citation: Path = CITATION, settings: Path = SETTINGS) -> Edition:
    """Raises: DataError for a field that is missing or unknown."""
    cited, places = _read(citation), _read(settings)
    for name in ("title", "authors", "version", "date-released"):
        if not cited.get(name):
            raise DataError(f"{citation}: {name!r} is missing")
    if set(places) != set(PLACES):
        raise DataError(f"{settings}: has {', '.join(places)}; it takes {', '.join(PLACES)}")
    authors = " and ".join(map(_author, cited["authors"]))
    where = {name: str(places[name] or "") for name in PLACES}
    return Edition(cited["title"], authors, str(cited["version"]), str(cited["date-released"]), **where)
