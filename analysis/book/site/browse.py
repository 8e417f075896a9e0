"""Open every rendered page in headless Chromium, from its file, and list what a reader without a network would miss.

    python -m analysis browse [--axe axe.min.js] [page ...]

Listed are requests for anything but files, files that do not load, scripts that fail and, with axe-core's file, its
serious findings. The build checks what can be seen in the pages themselves (analysis/book/site/check.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...records.files import REFERENCE
from .check import pages
from .place import Place

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-pipe", "--window-size=1280,900",
)  # fmt: skip
SECONDS = 60.0
SETTLED = 0.5  # s without an event, after which a page is taken to be done
OWN = ("file:", "data:", "blob:", "about:")
AXE = """axe.run(document, {resultTypes: ["violations"]}).then((found) => JSON.stringify(found.violations.map(
  (one) => [one.impact, one.id, one.help, one.nodes.length, one.nodes[0].target.join(" ")])))"""
SERIOUS = ("serious", "critical")


class Browser:
    """Chromium, spoken to by its DevTools protocol over a pipe: JSON messages, each ended by a zero byte."""

    def __init__(self, into: int, out: int) -> None:
        self.into, self.out = into, out
        self.numbers = itertools.count(1)
        self.buffer = b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Page", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Raises: RuntimeError with what the browser says is wrong."""
        message: dict[str, Any] = {"id": next(self.numbers), "method": method, "params": params}
        if hasattr(self, "session"):
            message["sessionId"] = self.session
        os.write(self.into, json.dumps(message).encode() + b"\0")
        while answer := self.receive(SECONDS):
            if answer.get("id") == message["id"]:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)
        raise RuntimeError(f"{method}: no answer within {SECONDS:.0f} s")

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """The next message, or None after some seconds of silence."""
        until = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            if time.monotonic() > until:
                return None
            if select.select([self.out], [], [], 0.1)[0]:
                self.buffer += os.read(self.out, 1 << 20)
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path) -> list[dict[str, Any]]:
        """Open a page and return everything that happened until it was done."""
        self.events = []
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            event = self.receive(SECONDS)
            if event is None:
                raise RuntimeError(f"{page}: not loaded within {SECONDS:.0f} s")
            self.events.append(event)
        while event := self.receive(SETTLED):
            self.events.append(event)
        return self.events

    def evaluate(self, script: str) -> Any:
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["text"])
        return result["result"].get("value")


def browser_path() -> str:
    """The Chromium of this machine. Raises: FileNotFoundError with the names that were looked for."""
    if found := next(filter(None, map(shutil.which, BROWSERS)), None):
        return found
    raise FileNotFoundError(f"there is no browser on the PATH; one of {', '.join(BROWSERS)} is needed")


@contextmanager
def browsing(path: str) -> Iterator[Browser]:
    """A browser with a profile of its own, closed in the end."""
    (hears, into), (out, says) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # its helpers may outlive it
        command = f'exec "$0" "$@" 3<&{hears} 4>&{says}'
        process = subprocess.Popen(
            ["sh", "-c", command, path, *QUIET, f"--user-data-dir={profile}"],
            pass_fds=(hears, says), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(hears)
        os.close(says)
        try:
            yield Browser(into, out)
        finally:
            process.terminate()
            process.wait(SECONDS)
            os.close(into)
            os.close(out)


def missed(events: list[dict[str, Any]]) -> list[str]:
    """What a page asked of the network, what of its own did not load, and which script failed."""
    addresses: dict[str, str] = {}
    found = []
    for event in events:
        params = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            address = addresses[params["requestId"]] = params["request"]["url"]
            if not address.startswith(OWN):
                found.append(f"asks for {address}")
        elif event.get("method") == "Network.loadingFailed" and params["requestId"] in addresses:
            found.append(f"cannot load {addresses[params['requestId']]}: {params['errorText']}")
        elif event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            found.append(f"script fails: {details.get('exception', {}).get('description', details['text'])}")
    return found


def accessibility(browser: Browser, axe: str) -> list[str]:
    """The serious findings of axe-core, whose source is `axe`, on the open page."""
    browser.evaluate(axe)
    found = json.loads(browser.evaluate(AXE))
    return [
        f"{impact}: {rule}, {words}: {count} times, first at {first}"
        for impact, rule, words, count, first in found
        if impact in SERIOUS
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis browse", description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="pages of a book; all of them without one")
    parser.add_argument("--gpu", default=REFERENCE, help="whose book: a folder of _build/")
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core, to look for accessibility faults too")
    options = parser.parse_args(arguments)
    html = Place.of(options.gpu).html
    chosen = [page.resolve() for page in options.pages] or pages(html)
    try:
        path = browser_path()
        if not chosen:
            raise FileNotFoundError(f"{html} has no pages; run `make book`")
    except FileNotFoundError as error:
        print(f"browse: {error}", file=sys.stderr)
        return 2
    axe = options.axe.read_text(encoding="utf-8") if options.axe else ""
    count = 0
    with browsing(path) as browser:
        for page in chosen:
            found = missed(browser.open(page))
            found += accessibility(browser, axe) if axe else []
            count += len(found)
            for words in found:
                print(f"[browse] {page.name}: {words}", flush=True)
    print(f"[browse] {len(chosen)} pages, {count} findings")
    return int(count > 0)
