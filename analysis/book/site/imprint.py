"""What stands at the foot of every page: version, commit, card, date and licence."""

from __future__ import annotations

from html import escape

from ...measure.provenance import commit
from ...records.measured import Measured
from ..edition import CODE_LICENSE, LICENSE, LICENSE_URL, Edition, edition
from ..origin import measured_in


def footer(evidence: Measured, code: str = "", this: Edition | None = None) -> str:
    """HTML; `code` is the commit that the book is built from, by default that of the repository."""
    this = this or edition()
    dates = sorted({run.date for run in measured_in(evidence).runs})
    published = {
        "source": this.repository,
        "DOI": f"https://doi.org/{this.doi}" if this.doi else "",
    }
    parts = [
        f"Version {this.version} of {this.date}, commit {code or commit()}.",
        f"{evidence.card}: measured {dates[-1]}." if dates else f"{evidence.card}.",
        f'Text, figures and data: <a href="{LICENSE_URL}">{LICENSE}</a>. Code: {CODE_LICENSE}.',
        *(f'<a href="{escape(address)}">{words}</a>' for words, address in published.items() if address),
    ]
    return " ".join(parts)
