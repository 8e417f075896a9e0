"""Checks of rendered pages that Sphinx lacks: links in raw HTML, files loaded from elsewhere, and sizes."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LARGEST = 1_500_000  # bytes of a page, images in it not counted
IMAGE = re.compile(r"data:image/[^\"')]*")
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href"}
IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """The anchors of a page, what it links to and what it loads, without the images inside it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        text = IMAGE.sub("", path.read_text(encoding="utf-8"))
        self.bytes = len(text.encode())
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag in LOADED and LOADED[tag] in found and found.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(found[LOADED[tag]])
        elif tag == "a" and "href" in found:
            self.links.append(found["href"])


def faults(root: Path) -> list[str]:
    """All faults of the pages under `root`; below _static there are only templates of the theme."""
    root = root.resolve()
    paths = [path for path in sorted(root.rglob("*.html")) if "_static" not in path.relative_to(root).parts]
    pages = {path: Page(path) for path in paths}
    found = [f"{path.relative_to(root)}: {fault}" for path in paths for fault in _faults(path, pages)]
    for path in sorted(root.rglob("*.css")):
        outside = IN_STYLES.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(root)}: loads {address}" for address in outside]
    return found


def _faults(path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    page = pages[path]
    if page.bytes > LARGEST:
        yield f"{page.bytes:,} B without its images; the most is {LARGEST:,} B"
    for address in dict.fromkeys((*page.links, *page.loads)):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            if address in page.loads and parts.scheme != "data":
                yield f"loads {address}"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        if not target.is_file():
            yield f"{address} is not there"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
            yield f"{address} has no such anchor"
