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

from .. import tables
from ..claims import judge
from ..claims.claim import Claim
from ..evidence import Evidence
from ..measure.studies import TIMERS
from ..record.files import ROOT, DataError
from ..tables import versions
from ..tables.language import beside_control, why_unlike
from ..tables.table import Table, family_title, has_page, page_of, short
from ..tables.table import link as linked
from ..tables.versions import families, in_order
from . import sources
from .templates import render


def link(name: str) -> str:
    """A link to where a version stands. Raises: DataError when there is no such version."""
    if name not in VERSIONS:
        raise DataError(f"a page would link to {name!r}, which is no version; known: {', '.join(VERSIONS)}")
    return linked(name)


def paged(family: str) -> list[Version]:
    """The versions of a family that have a page, in the order of the pages."""
    return [version for version in in_order(family) if has_page(version)]


def claims_about(e: Evidence, version: str) -> list[Claim]:
    """The claims whose tests name a version."""
    named = judge.named(e.slug)
    return [claim for claim in judge.claims() if version in named[claim.id]]


def _neighbours(version: Version) -> str:
    pairs = [(before.id, after.id) for before, after in pairwise(paged(version.family))]
    before = [f"← {link(one)}" for one, after in pairs if after == version.id]
    behind = [f"{link(after)} →" for one, after in pairs if one == version.id]
    return " · ".join([*before, f"[{family_title(version.family)}, every version]({version.family}.md)", *behind])


def _beside(e: Evidence, page: str, family: str) -> list[dict[str, Any]]:
    """What is told of the versions without a page that stand on one."""
    return [_told(e, each) for each in in_order(family) if not has_page(each) and page_of(each.id) == page]


def _words(version: Version) -> str:
    """What the file says of itself, without its title and its source, as HTML."""
    document = sys.modules[version.module].__doc__ if version.module in sys.modules else None
    paragraphs = (document or "").strip().split("\n\n")[1:]
    told = (" ".join(text.split()) for text in paragraphs if not text.startswith(("Source:", "    ")))
    return "\n".join("<p>" + re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text)) + "</p>" for text in told)


def _told(e: Evidence, version: Version) -> dict[str, Any]:
    """What is told of a version, by the names that the templates give it."""
    path = Path(*version.module.split(".")).with_suffix(".py")
    return {
        "version": version,
        "path": path if (ROOT / path).is_file() else "",
        "times": versions.times(e, version),
        "unmeasured": versions.unmeasured(e, version),
        "cores": versions.cores(e, version),
        **versions.checks(e, version),
        "control": next((each.id for each in VERSIONS.values() if each.control_of == version.id), ""),
        "beside_control": beside_control(e, version.id),
        "why_unlike": why_unlike(e, version.id),
        "claims": tables.verdicts(judge.recorded(e.slug), claims_about(e, version.id)),
        "hazards": versions.hazards(e, version),
        "launches": versions.launches(version),
        "resources": versions.resources(e, version),
        "counts": versions.counts(e, version),
        "counters": versions.counters(e, version),
        "words": _words(version),
        "diff": sources.diff_text(version.id).rstrip() if version.parent else "",
        "source": sources.kernel_text(version.id).rstrip(),
        "documents": versions.documents(version),
    }


def page(e: Evidence, version: Version) -> str:
    """The page of a version, as MyST Markdown, with those that change one thing of it.

    Raises: DataError when it would link to a version that is not there.
    """
    others = _beside(e, version.id, version.family)
    neighbours = _neighbours(version)
    return render("version.md", told=_told(e, version), others=others, link=link, gpu=e.card, neighbours=neighbours)


def family_page(e: Evidence, family: str) -> str:
    """Everything that was measured of a family, a row a version and a column a head dim; and its peers."""
    study = e.study(tables.home(e, family))
    timers = [timer for timer in TIMERS if any(e.time(each, study.name, timer) for each in study.versions(family))]
    shown: dict[str, Table] = {
        "Speed over the baseline": tables.speedups(e, family),
        **{f"Time, {timer}": tables.times(e, family, timer) for timer in timers},
        "Checked against float64": tables.checks(e, family),
        "What the compiler reports": tables.resources(family),
    }
    return render(
        "family.md",
        title=family_title(family),
        overview=versions.overview(e, family),
        tables=shown if study.versions(family) else {},
        others=_beside(e, family, family),
        link=link,
        gpu=e.card,
    )


def contents() -> list[dict[str, Any]]:
    """The pages as entries of the table of contents: a family each, its versions below."""
    return [
        {
            "file": f"book/versions/{family}",
            "title": family_title(family),
            "sections": [{"file": f"book/versions/{v.id}", "title": short(v.id)} for v in paged(family)],
        }
        for family in families()
    ]


def write(slug: str, folder: Path) -> None:
    """Make the pages anew in a folder for the measurements of a GPU. Raises: DataError."""
    e = Evidence.load(slug)
    texts = {version.id: page(e, version) for version in VERSIONS.values() if has_page(version)}
    texts |= {family: family_page(e, family) for family in families()}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
