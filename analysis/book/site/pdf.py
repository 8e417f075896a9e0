"""Print the story chapters of a built book as one PDF, through headless Chromium.

    python -m analysis pdf --gpu nvidia-h200

The pages are those of `make book`: their articles are put behind a title page, links between them become links within
the PDF, and what only serves on a screen is left out. The PDF is `_build/<gpu>/book.pdf`.
"""

from __future__ import annotations

import argparse
import base64
import sys
from html import escape
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup, Tag

from ...records.files import REFERENCE, DataError
from ..edition import edition
from ..notebook import load
from .browse import browser_path, browsing
from .imprint import footer
from .place import CHAPTERS, Place, contents

STORY = ("index", "setup", "baseline", "sinusoidal", "rope", "fusion", "v8", "map", "fp16")  # those that _toc.yml has
SCREEN_ONLY = "details.cite, .permalink, a.headerlink, .figure-title, .toctree-wrapper, button, .cell_input, .made-up"
PAPER = {"paperWidth": 8.27, "paperHeight": 11.69, "marginTop": 0.7, "marginBottom": 0.8, "marginLeft": 0.6}
NUMBERS = (
    "<div style='width: 100%; font: 8px sans-serif; color: #555; text-align: center'>"
    "<span class='pageNumber'></span></div>"
)
FIT = """(() => {  // a table or listing that is wider than the page is made smaller, so that nothing is cut
  const width = document.querySelector("main").clientWidth;
  for (const one of document.querySelectorAll("table, mjx-container[display=true] svg")) {
    const own = one.getBoundingClientRect().width;
    if (own > width) one.style.zoom = width / own;
  }
  return [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > width + 60)
    .map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 40)}`).slice(0, 20);
})()"""


def story() -> list[str]:
    """The names of the chapters that are printed, in the order of the book."""
    return [Path(page).name for page in contents() if page.startswith(f"{CHAPTERS}/") and Path(page).name in STORY]


def _article(page: Path, names: list[str]) -> Tag:
    """The article of a page, its anchors told from those of other pages. Raises: DataError where it is not built."""
    if not page.is_file():
        raise DataError(f"{page} is not there; run `make book` first")
    article = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").find("article")
    if not isinstance(article, Tag):
        raise DataError(f"{page} has no article; run `make book` again")
    for unwanted in article.select(SCREEN_ONLY):
        unwanted.decompose()
    for unfolded in article.select("details"):
        unfolded["open"] = ""
    for anchored in article.select("[id]"):
        anchored["id"] = f"{page.stem}-{anchored['id']}"
    for link in article.select("a[href]"):
        address = urlsplit(str(link["href"]))
        if address.scheme in ("http", "https"):
            continue
        target = Path(address.path).stem or page.stem
        in_book = not address.path or (Path(address.path).parent == Path(".") and target in names)
        if in_book:
            link["href"] = f"#{target}-{address.fragment}" if address.fragment else f"#{target}"
        elif public := edition().url:
            link["href"] = urljoin(f"{public.rstrip('/')}/{CHAPTERS}/", str(link["href"]))
        else:
            link.unwrap()  # it leads to a page that is not printed
    return article


def assemble(place: Place, about: str) -> str:
    """The page that is printed; `about` is the imprint, HTML."""
    names, this = story(), edition()
    folder = place.html / CHAPTERS
    articles = [(name, _article(folder / f"{name}.html", names)) for name in names]
    head = BeautifulSoup((folder / f"{names[0]}.html").read_text(encoding="utf-8"), "html.parser").find("head")
    listed = "".join(
        f"<li><a href='#{name}'>{escape(heading.get_text()) if (heading := article.find('h1')) else name}</a></li>"
        for name, article in articles
    )
    authors = this.authors.strip("{}").replace(" and ", ", ")
    title = f"<h1>{escape(this.title)}</h1><p>{escape(authors)}</p><p>{about}</p><ol>{listed}</ol>"
    chapters = "".join(f"<section class='chapter' id='{name}'>{article}</section>" for name, article in articles)
    if isinstance(head, Tag) and head.title:
        head.title.string = this.title
    sheet = "<link rel='stylesheet' href='../../_static/print.css'>"
    return (
        f"<!doctype html><html lang='en' data-theme='light'>{head}<body>{sheet}<main class='bd-article'>"
        f"<section class='title-page'>{title}</section>{chapters}</main></body></html>"
    )


def print_pdf(place: Place, about: str, browser: str) -> tuple[Path, list[str]]:
    """Write the PDF; return it and what would not fit on a page."""
    page = place.html / CHAPTERS / "print.html"  # where the addresses of the chapters hold
    page.write_text(assemble(place, about), encoding="utf-8")
    try:
        with browsing(browser) as chromium:
            chromium.call("Emulation.setEmulatedMedia", media="print")
            chromium.call(
                "Emulation.setDeviceMetricsOverride", width=680, height=980, deviceScaleFactor=1, mobile=False
            )
            chromium.open(page)
            wide = chromium.evaluate(FIT)
            printed = chromium.call(
                "Page.printToPDF", printBackground=True, displayHeaderFooter=True, headerTemplate="<span></span>",
                footerTemplate=NUMBERS, generateDocumentOutline=True, generateTaggedPDF=True,
                **PAPER, marginRight=PAPER["marginLeft"],
            )  # fmt: skip
    finally:
        page.unlink()
    path = place.folder / "book.pdf"
    path.write_bytes(base64.b64decode(printed["data"]))
    return path, wide


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis pdf", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", default=REFERENCE, help="whose book: a folder of _build/")
    options = parser.parse_args(arguments)
    try:
        path, wide = print_pdf(Place.of(options.gpu), footer(load(options.gpu)), browser_path())
    except (DataError, FileNotFoundError) as error:
        print(f"pdf: {error}", file=sys.stderr)
        return 1
    for each in wide:
        print(f"[pdf] wider than the page: {each}")
    print(f"[pdf] {path}")
    return 0
