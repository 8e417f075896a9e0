"""What must hold of the rendered pages: they load nothing from elsewhere, links lead somewhere, no page is too large.

What the theme gets wrong in every page is mended here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from html.parser import HTMLParser
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGEST = 1_500_000  # bytes of a page, images in it not counted
AT_ONCE = 2
IMAGE = re.compile(r"data:image/[^\"')]*")
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
STYLES = ("stylesheet", "preload", "prefetch", "icon", "preconnect", "dns-prefetch", "modulepreload")
IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")
MENDED = {  # what the theme writes into every page, and what stands there instead
    # Code that would run cells on a server: none is offered, and declaring it twice is an error.
    r"<script>const THEBE_JS_URL.*?</script>|<script type=.text/x-thebe-config.>.*?</script>": "",
    r"<(script|link)\b[^>]*sphinx-thebe\.[^>]*>(</script>)?": "",
    # For those who hear a page: names that say what is shown, and a list without items.
    r"(<button class=.btn search-button-field[^>]*) aria-label=.Search.": r"\1",
    r"(<i class=.theme-switch [^>]*?)\s+title=.[^>]*>": r"\1>",
    r">([^<>]*)(</a><details[^>]*>)<summary>(?=<span class=.toctree-toggle)": r">\1\2<summary aria-label='\1: pages'>",
    r"<div role=.list. class=.citation-list.>": "<div class='citation-list'>",
    # A number and its unit stay on one line.
    r"(?<=\d) (?=(?:%|µs|ms|KB|MB|GB|TFLOP/s)(?!\w))": "\u00a0",
}


@dataclass
class Page(HTMLParser):
    """The anchors of a page, what it links to and what it loads."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag in LOADED and LOADED[tag] in found:
            self.loads.append(found[LOADED[tag]])
        elif tag == "link" and found.get("rel", "") in STYLES:
            self.loads.append(found.get("href", ""))
        elif tag == "a" and "href" in found:
            self.links.append(found["href"])


def pages(root: Path) -> list[Path]:
    """The pages under `root`; below _static there are only templates of the theme."""
    return [path for path in sorted(root.rglob("*.html")) if "_static" not in path.relative_to(root).parts]


def banner(gpu: Mapping[str, Any]) -> str:
    """What stands on top of every page about the card of a gpu.json; nothing of a card that was measured."""
    said = "<b>Made up, for tests.</b> No card measured these numbers."
    return f"<div class='made-up' role='note'>{said}</div>" if gpu.get("made_up") else ""


def mend(root: Path, banner: str = "") -> None:
    """Mend in the pages under `root` what the theme gets wrong, and put a banner on top of what each says."""
    for path in pages(root):
        text = path.read_text(encoding="utf-8")
        for wrong, right in MENDED.items():
            text = re.sub(wrong, right, text, flags=re.DOTALL)
        text = re.sub(r"(<article\b[^>]*>)", lambda found: found[1] + banner, text, count=1)
        path.write_text(text, encoding="utf-8")


def is_outside(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https")


def outside(root: Path, read: Mapping[Path, Page]) -> Iterator[str]:
    """What the pages and their style sheets under `root` would load from the network."""
    for path, page in read.items():
        yield from (f"{path.relative_to(root)} loads {address}" for address in page.loads if is_outside(address))
    for path in sorted(root.rglob("*.css")):
        found = IN_STYLES.findall(path.read_text(encoding="utf-8"))
        yield from (f"{path.relative_to(root)} loads {address}" for address in found)


def broken(root: Path, read: Mapping[Path, Page]) -> Iterator[str]:
    """Links and files of the pages under `root` that lead nowhere, anchors included."""
    for path, page in read.items():
        for address in dict.fromkeys((*page.links, *page.loads)):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file():
                yield f"{path.relative_to(root)}: {address} is not there"
            elif anchor and target in read and anchor not in read[target].anchors:
                yield f"{path.relative_to(root)}: {address} has no such anchor"


def weight(path: Path) -> int:
    """Bytes of a page without the images in it."""
    return len(IMAGE.sub("", path.read_text(encoding="utf-8")).encode())


def heavy(root: Path) -> Iterator[str]:
    """Pages under `root` that are too large."""
    for path in pages(root):
        if weight(path) > LARGEST:
            yield f"{path.relative_to(root)} has {weight(path):,} B without its images; the most is {LARGEST:,} B"


def faults(root: Path) -> list[str]:
    """Everything that is wrong with the pages under `root`."""
    root = root.resolve()
    with ProcessPoolExecutor(AT_ONCE, get_context("forkserver")) as pool:
        read = dict(zip(pages(root), pool.map(Page, pages(root), chunksize=4), strict=True))
    return [*outside(root, read), *broken(root, read), *heavy(root)]
