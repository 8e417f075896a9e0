"""Files of a figure, and its place in a page, with its caption and cite block."""

import base64
import hashlib
import io
from html import escape
from pathlib import Path
from typing import Any

from ..figures.style import Plot, styled
from ..record.files import BUILD, DATA, replace_file
from . import citing
from .edition import LICENSE, LICENSE_URL, edition

CHECKSUMS = DATA / "figures.sha256"  # of the CSVs of the reference's figures, as sha256sum writes them
PUBLISHED_AT = "../../book/figures"  # from a chapter of the book
FORMATS = ("svg", "png")


def folder(slug: str) -> Path:
    """The folder of the figures of a GPU's book."""
    return BUILD / slug / "figures"


def differing(where: Path) -> list[str]:
    """The CSVs in a folder that differ from the recorded checksums: changed, missing, or not recorded."""
    recorded = {name: digest for digest, name in map(str.split, CHECKSUMS.read_text(encoding="utf-8").splitlines())}
    built = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in where.glob("*.csv")}
    return sorted(name for name in recorded.keys() | built.keys() if recorded.get(name) != built.get(name))


def metadata(plot: Plot, format: str) -> dict[str, Any]:
    """Metadata of a file: title, author, card, run, commit and licence, without a date."""
    author, source, rights = edition().authors.strip("{}"), str(plot.source), f"{LICENSE}, {LICENSE_URL}"
    if format == "svg":
        told = {"Identifier": plot.id, "Creator": author, "Description": source, "Rights": rights, "Date": None}
    else:
        told = {"Author": author, "Description": source, "Copyright": rights, "Software": None}
    return {"Title": plot.title, **told}


def save(plot: Plot, where: Path) -> None:
    """Write `where`/<id>.svg, .png and .csv, byte for byte the same for the same data."""
    for format in FORMATS:
        content = io.BytesIO()
        with styled():
            plot.figure.savefig(content, format=format, metadata=metadata(plot, format), dpi=200)
        replace_file(where / f"{plot.id}.{format}", content.getvalue())  # two notebooks may save it at the same time
    table = plot.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    replace_file(where / f"{plot.id}.csv", table.encode())


def to_html(plot: Plot, where: Path) -> str:
    """The saved figure, its title above it as text."""
    image = base64.b64encode(_without_title(plot, (where / f"{plot.id}.svg").read_text(encoding="utf-8")).encode())
    anchor = f"figure-{plot.id}"
    links = [f"<a href='{PUBLISHED_AT}/{plot.id}.{suffix}'>{suffix.upper()}</a>" for suffix in (*FORMATS, "csv")]
    files = f"{', '.join(links)}; drawn by {citing.to_file(plot.script)} at commit {citing.this_commit()}"
    return (
        f"<figure class='evidence' id='{anchor}'><p class='figure-title'>{escape(plot.title)}</p>"
        f"<img src='data:image/svg+xml;base64,{image.decode()}' alt='{escape(plot.alt, quote=True)}'>"
        f"<figcaption>{escape(plot.caption)} {citing.permalink(anchor)}</figcaption>"
        f"{citing.block(anchor, plot.title, plot.source, files, f'book/figures/{plot.id}.svg')}</figure>"
    )


def _without_title(plot: Plot, svg: str) -> str:
    """The image cut below its title, which the page has as text."""
    width, height = (72 * size for size in plot.figure.get_size_inches())
    left = height - plot.title_points
    whole, cut = f'viewBox="0 0 {width:g} {height:g}"', f'viewBox="0 {plot.title_points:g} {width:g} {left:g}"'
    return svg.replace(whole, cut, 1).replace(f'height="{height:g}pt"', f'height="{left:g}pt"', 1)
