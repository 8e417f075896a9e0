"""A page of the book for every version of the log and for V8's family, and one for every family, made from data.

An ablation, a build or a control stands on the page of the version of which it changes something, a peer on that of
its family. What a version is comes from its registration and its plans, what it does from the tables under data/, what
it looks like from its source. The words around are templates, so a version that is registered is told.
"""

from __future__ import annotations

import re
import shutil
import sys
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from kernels import VERSIONS, Version

from ... import tables
from ...figures import style
from ...measure.studies import TIMERS
from ...records.files import ROOT, DataError
from ...records.measured import Measured
from ...tables.homes import has_page, page_of
from ...tables.table import Table
from ...tables.table import link as linked
from .. import sources
from ..chapters.language import beside_control, why_unlike
from ..templates import render
from . import counted, measured
from .measured import family_title
from .records import Records, claims_by_version, families, in_order


def link(name: str) -> str:
    """A link to where a version stands. Raises: DataError when there is no such version."""
    if name not in VERSIONS:
        raise DataError(f"a page would link to {name!r}, which is no version; known: {', '.join(VERSIONS)}")
    return linked(name)


def paged(family: str) -> list[Version]:
    """The versions of a family that have a page, in the order of the pages."""
    return [version for version in in_order(family) if has_page(version)]


def _neighbours(version: Version) -> str:
    pairs = [(before.id, after.id) for before, after in pairwise(paged(version.family))]
    before = [f"← {link(one)}" for one, after in pairs if after == version.id]
    behind = [f"{link(after)} →" for one, after in pairs if one == version.id]
    return " · ".join([*before, f"[{family_title(version.family)}, every version]({version.family}.md)", *behind])


def _beside(records: Records, page: str, family: str) -> list[dict[str, Any]]:
    """What is told of the versions without a page that stand on one."""
    return [_told(records, each) for each in in_order(family) if not has_page(each) and page_of(each.id) == page]


def _words(version: Version) -> str:
    """What the file says of itself, without its title and its source, as HTML."""
    document = sys.modules[version.module].__doc__ if version.module in sys.modules else None
    paragraphs = (document or "").strip().split("\n\n")[1:]
    told = (" ".join(text.split()) for text in paragraphs if not text.startswith(("Source:", "    ")))
    return "\n".join("<p>" + re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text)) + "</p>" for text in told)


def _told(records: Records, version: Version) -> dict[str, Any]:
    """What is told of a version, by the names that the templates give it."""
    path = Path(*version.module.split(".")).with_suffix(".py")
    return {
        "version": version,
        "path": path if (ROOT / path).is_file() else "",
        "times": measured.times(records, version),
        "unmeasured": measured.unmeasured(records, version),
        "expected": measured.expected(version),
        "cores": measured.cores(records, version),
        **measured.checks(records, version),
        "control": next((each.id for each in VERSIONS.values() if each.control_of == version.id), ""),
        "beside_control": beside_control(records.studies.get("control"), version.id),
        "why_unlike": why_unlike(records.studies.get("control"), version.id),
        "claims": tables.verdicts(records.verdicts, claims_by_version().get(version.id, ())),
        "hazards": counted.hazards(records, version),
        "launches": counted.launches(version),
        "resources": counted.resources(records, version),
        "counts": counted.counts(records, version),
        "counters": counted.counters(records, version),
        "words": _words(version),
        "diff": sources.diff_text(version.id).rstrip() if version.parent else "",
        "source": sources.kernel_text(version.id).rstrip(),
        "documents": measured.documents(version),
    }


def page(records: Records, version: Version) -> str:
    """The page of a version, as MyST Markdown, with those that change one thing of it.

    Raises: DataError when it would link to a version that is not there.
    """
    return render(
        "version.md",
        told=_told(records, version),
        others=_beside(records, version.id, version.family),
        link=link,
        gpu=records.gpu,
        neighbours=_neighbours(version),
    )


def family_page(records: Records, family: str) -> str:
    """Everything that was measured of a family, a row a version and a column a head dim; and its peers."""
    home = records.home(family)
    return render(
        "family.md",
        title=family_title(family),
        overview=measured.overview(records.studies.values(), family),
        tables=_tables(home, family) if home else {},
        others=_beside(records, family, family),
        link=link,
        gpu=records.gpu,
    )


def _tables(home: Measured, family: str) -> dict[str, Table]:
    pairs = [(name, problem) for name in home.versions(family) for problem in home.problems(family)]
    timers = [timer for timer in TIMERS if any(home.medians(*pair, timer).size for pair in pairs)]
    return {
        "Speed over the baseline": tables.speedups(home, family),
        **{f"Time, {timer}": tables.times(home, family, timer) for timer in timers},
        "Checked against float64": tables.checks(home, family),
        "What the compiler reports": tables.resources(family),
    }


def contents() -> list[dict[str, Any]]:
    """The pages as entries of the table of contents: a family each, its versions below."""
    return [
        {
            "file": f"book/versions/{family}",
            "title": family_title(family),
            "sections": [{"file": f"book/versions/{v.id}", "title": style.short(v.id)} for v in paged(family)],
        }
        for family in families()
    ]


def write(slug: str, folder: Path) -> list[Path]:
    """Make the pages anew in a folder for the measurements of a GPU. Raises: DataError."""
    records = Records(slug)
    pages = {version.id: page(records, version) for version in VERSIONS.values() if has_page(version)}
    pages |= {family: family_page(records, family) for family in families()}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = []
    for name, text in pages.items():
        paths.append(folder / f"{name}.md")
        paths[-1].write_text(text, encoding="utf-8")
    return paths
