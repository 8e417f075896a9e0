"""Name, maintainers and address of this edition, from CITATION.cff."""

import functools
from dataclasses import dataclass
from pathlib import Path

import yaml

from ..record.files import ROOT, DataError

CITATION = ROOT / "CITATION.cff"
LICENSE = "CC BY 4.0"
LICENSE_URL = "https://creativecommons.org/licenses/by/4.0/"
CODE_LICENSE = "MIT"
NOBODY = "the fused-positional-embeddings authors"  # while no maintainer is named


@dataclass(frozen=True)
class Edition:
    """Fields of CITATION.cff; empty where it has none."""

    title: str
    version: str
    date: str  # "2026-11-23"
    maintainers: tuple[str, ...]  # "Family name, Given name"
    url: str
    repository: str
    doi: str
    writeup: str = ""  # its address

    @property
    def whereabouts(self) -> str:
        """Where the write-up and the repository are, as Markdown, or that this edition knows no address of them."""
        places = {"The write-up": self.writeup, "The repository": self.repository}
        known = [f"{name} is at <{address}>." for name, address in places.items() if address]
        missing = [name.lower() for name, address in places.items() if not address]
        if missing:
            known.append(
                f"This edition knows no public address of {' and '.join(missing)} yet; what the documents print is "
                "quoted, row by row, in [published.csv](../published.csv)."
            )
        return " ".join(known)

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
def edition(citation: Path = CITATION) -> Edition:
    try:
        found = yaml.safe_load(citation.read_text(encoding="utf-8"))
        people = [f"{one['family-names']}, {one['given-names']}" for one in found["authors"] if "name" not in one]
        title, version, date = (str(found[name]) for name in ("title", "version", "date-released"))
        url, repository, doi = (found.get(name, "") for name in ("url", "repository-code", "doi"))
        writeup = next((one.get("url", "") for one in found.get("references", ())), "")
        return Edition(title, version, date, tuple(people), url, repository, doi, writeup)
    except KeyError as error:
        raise DataError(f"{citation} lacks {error}") from None
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{citation}: {' '.join(str(error).split())}") from None
