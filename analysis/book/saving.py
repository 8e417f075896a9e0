"""How a figure is saved, and shown in a page with its caption and how to cite it."""

from __future__ import annotations

import base64
import io
import os
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl

from ..records.files import BUILD, ROOT, is_committed
from . import citing
from .edition import LICENSE, LICENSE_URL, edition
from .style import STYLE, Plot

FOLDER = ROOT / "book" / "figures"
PUBLISHED_AT = "../../book/figures"  # from a chapter of the book, and from a notebook
FORMATS = ("svg", "png", "pdf")  # the SVG first: it says whether the others are drawn again


def folder(slug: str) -> Path:
    """Where figures go: into the repository for the committed record, else into that GPU's build."""
    return FOLDER if is_committed(slug) else BUILD / slug / "figures"


def metadata(plot: Plot, format: str) -> dict[str, Any]:
    """What a file says of itself: title, author, card, run, commit and licence. It is the same on every day."""
    author, source, rights = edition().authors.strip("{}"), str(plot.source), f"{LICENSE}, {LICENSE_URL}"
    told: dict[str, dict[str, Any]] = {
        "svg": {"Identifier": plot.id, "Creator": author, "Description": source, "Rights": rights, "Date": None},
        "png": {"Author": author, "Description": source, "Copyright": rights, "Software": None},
        "pdf": {"Author": author, "Subject": source, "Keywords": rights, "CreationDate": None},
    }
    return {"Title": plot.title, **told[format]}


def save(plot: Plot, where: Path) -> None:
    """Write `where`/<id>.svg, .png, .pdf and .csv, byte for byte the same for the same data.

    PNG and PDF, which take the longest, are kept where the SVG beside them is the one that would be written.
    """
    where.mkdir(parents=True, exist_ok=True)
    paths = {format: where / f"{plot.id}.{format}" for format in FORMATS}
    with mpl.rc_context(STYLE):
        svg = _drawn(plot, "svg")
        if not all(path.exists() for path in paths.values()) or paths["svg"].read_bytes() != svg:
            for format in FORMATS[1:]:
                _write(paths[format], _drawn(plot, format))
            _write(paths["svg"], svg)  # last, so that the others are of it
    table = plot.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    _write(where / f"{plot.id}.csv", table.encode())


def _drawn(plot: Plot, format: str) -> bytes:
    content = io.BytesIO()
    plot.figure.savefig(content, format=format, metadata=metadata(plot, format), dpi=200)
    return content.getvalue()


def _write(path: Path, content: bytes) -> None:
    """In one step: two notebooks may save the same figure at the same time."""
    temporary = path.with_suffix(f"{path.suffix}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def to_html(plot: Plot, where: Path) -> str:
    """The saved figure in a frame; on a phone a wide one scrolls below its title, which stands above it as text."""
    image = base64.b64encode((where / f"{plot.id}.svg").read_bytes()).decode()
    anchor = f"figure-{plot.id}"
    links = ", ".join(
        f"<a href='{PUBLISHED_AT}/{plot.id}.{suffix}'>{suffix.upper()}</a>" for suffix in (*FORMATS, "csv")
    )
    return (
        f"<figure class='evidence{' narrow' * plot.narrow}' id='{anchor}'>"
        f"<p class='figure-title'>{escape(plot.title)}</p>"
        f"<div class='frame' tabindex='0' role='group' aria-label='{escape(plot.title, quote=True)}'>"
        f"<img src='data:image/svg+xml;base64,{image}' alt='{escape(plot.alt, quote=True)}'></div>"
        f"<figcaption>{escape(plot.caption)} {citing.permalink(anchor)}</figcaption>"
        f"{citing.block(anchor, plot.title, plot.source, links, f'book/figures/{plot.id}.svg')}</figure>"
    )
