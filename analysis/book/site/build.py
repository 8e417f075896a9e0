"""Build the book of a GPU in `_build/<gpu>/html`: execute the notebooks on its measurements, then render the pages.

    python -m analysis build --gpu nvidia-h200
    python -m analysis --data DIR build --gpu <a folder of DIR>

Notebooks are executed again, and pages rendered again, only when something that they are made from has changed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ... import figures, findings
from ...evidence import Evidence
from ...measure.provenance import commit
from ...record.files import DATA, REFERENCE, ROOT, DataError, digest, gpu_folder, is_committed, known_gpus
from ...record.published import load as load_published
from .. import pages, saving, templates
from ..edition import CITATION, SETTINGS
from ..front import five, readme
from ..notebook import load
from . import made
from .check import faults
from .execute import BuildError, execute, in_pool
from .place import CONFIG, TOC, Place, chapters, contents

NOTEBOOKS = ROOT / "analysis" / "notebooks"
README = ROOT / "README.md"
README_FIGURE = ROOT / "book" / "figures"
LONGEST = "compare"  # of the chapters, so that it does not end alone


def say(text: str) -> None:
    print(f"[book] {text}", flush=True)


def inputs(gpu: str) -> list[Path]:
    """Every file that the executed notebooks depend on."""
    code = [path for folder in ("analysis", "kernels") for path in (ROOT / folder).rglob("*.py")]
    cards = [gpu, *known_gpus()]  # one chapter compares them
    measured = {path for card in cards for path in gpu_folder(card).rglob("*") if path.is_file()}
    data = [*measured, *DATA.glob("*.csv"), *DATA.glob("*.yml")]
    texts = [*NOTEBOOKS.glob("*.ipynb"), *templates.FOLDER.glob("*.md")]
    return sorted([*code, *data, *texts, CITATION, SETTINGS, ROOT / "requirements.txt"])


def content_key(*parts: str, files: Iterable[Path]) -> str:
    return hashlib.sha256(" ".join([*parts, sys.version, digest(files)]).encode()).hexdigest()


def is_current(record: Path, key: str, made: Iterable[Path]) -> bool:
    """Whether files are there and were made from what the key is of."""
    return record.exists() and record.read_text(encoding="utf-8") == key and all(path.exists() for path in made)


@contextlib.contextmanager
def alone(place: Place) -> Iterator[None]:
    """Hold the folder of a GPU's book before anything is executed.

    Raises: BuildError where another build holds it, and for what the disk refuses, then or later.
    """
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        with (place.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BuildError(f"another build writes to {place.folder}; call again when it has ended") from None
            yield
    except OSError as error:
        raise BuildError(f"{error.filename or place.folder}: {error.strerror or error}") from error


# ---------------------------------------------------------------- the steps


def execute_all(gpu: str) -> str:
    """Bring the executed chapters, the figures and the pages of the versions up to date, and return what they are of.

    Raises: BuildError, DataError.
    """
    place, key = Place.of(gpu), content_key(gpu, files=inputs(gpu))
    record = place.folder / "executed-from.txt"
    output = {name: place.chapters / f"{name}.ipynb" for name in chapters()}
    if is_current(record, key, [saving.folder(gpu), place.versions, *output.values()]):
        say("notebooks: nothing has changed since they were executed")
        return key
    for folder in (place.source, saving.folder(gpu)):
        shutil.rmtree(folder, ignore_errors=True)
    place.chapters.mkdir(parents=True)
    tasks: dict[str, Callable[[], Any]] = {"pages of versions": partial(pages.write, gpu, place.versions)}
    for name in sorted(output, key=LONGEST.__ne__):
        tasks[name] = partial(execute, NOTEBOOKS / f"{name}.ipynb", output[name], gpu)
    for done, name in enumerate(in_pool(gpu, place.folder / "chapters.log", tasks), 1):
        say(f"executed {done} of {len(tasks)}: {name}")
    record.write_text(key, encoding="utf-8")
    return key


def tell(e: Evidence, strict: bool) -> None:
    """Say which findings do not hold and which figures differ. Raises: BuildError for the committed record, if strict.

    Findings are written for that record: on another card it is an answer that one does not hold, and no fault.
    """
    said, committed = findings.report(e), is_committed(e.slug)
    wrong = findings.broken() if committed else []
    if committed and (differ := saving.differing(saving.folder(e.slug))):
        wrong.append(f"{len(differ)} CSVs differ from {saving.CHECKSUMS.relative_to(ROOT)}: {', '.join(differ)}")
    if wrong and strict:
        raise BuildError("\n".join(wrong))
    say("\n".join([*said, *wrong]))


def write_readme(e: Evidence) -> None:
    """Write what was found, and the figure, into the README."""
    text = README.read_text(encoding="utf-8")
    plot = figures.fusing(e)
    README.write_text(readme(text, e, plot, five(e)), encoding="utf-8")
    for name in (f"{plot.id}.png", f"{plot.id}.csv"):
        shutil.copyfile(saving.folder(e.slug) / name, README_FIGURE / name)


def render(place: Place) -> Path:
    """Run Jupyter Book, warnings as errors, and return the folder of the pages. Raises: BuildError."""
    say("rendering the pages")
    built = place.folder / "_build"  # Jupyter Book's own name for it
    shutil.rmtree(built, ignore_errors=True)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", place.source, "--path-output", place.folder]
    result = subprocess.run(
        [*map(str, command), "--all", "-W", "-n", "--keep-going"],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    log = place.folder / "book.log"
    log.write_text(result.stdout + result.stderr, encoding="utf-8")
    if result.returncode:
        said = [line for line in (result.stdout + result.stderr).splitlines() if re.search("WARNING|ERROR|rror:", line)]
        raise BuildError("\n".join([f"the pages did not build; all that was said is in {log}", *said[:20]]))
    html = built / "html"
    if missing := [page for page in [*contents(), "index"] if not (html / f"{page}.html").is_file()]:
        raise BuildError(f"pages not written in {html}: {', '.join(missing)}")
    return html


def build(gpu: str, source: str = "recorded", strict: bool = False) -> Path:
    """Build the book for one GPU and return its first page; `strict` fails on what its own record contradicts.

    Raises: BuildError, DataError.
    """
    # A damaged file is one message here, not the same failure in every notebook.
    try:
        e = load(gpu, source)
    except RuntimeError as error:  # no GPU to measure on, or measuring failed
        raise BuildError(str(error)) from error
    place = Place.of(e.slug)
    with alone(place):
        return _build(e, place, strict)


def _build(e: Evidence, place: Place, strict: bool) -> Path:
    """As `build`, by a process that holds the folder. Raises: BuildError, DataError, OSError."""
    gpu = e.slug
    load_published()
    executed = execute_all(gpu)
    tell(e, strict)
    if is_committed(gpu):
        write_readme(e)
    texts = [path for path in (ROOT / "book").rglob("*") if path.is_file()]
    key = content_key(executed, commit(), files=[*texts, ROOT / CONFIG, ROOT / TOC])
    record = place.folder / "rendered-from.txt"
    if is_current(record, key, [place.html]):
        say("pages: nothing has changed since they were rendered")
        return place.html / "index.html"
    began = time.monotonic()
    made.write(place, e)
    place.stage(e)
    html = render(place)
    shutil.copytree(saving.folder(gpu), html / "book" / "figures", dirs_exist_ok=True)  # where the pages link to them
    shutil.copyfile(DATA / "published.csv", html / "book" / "published.csv")
    if found := faults(html):
        raise BuildError("\n".join([f"the pages in {html} have {len(found)} faults", *found[:20]]))
    record.unlink(missing_ok=True)
    place.publish(html)
    record.write_text(key, encoding="utf-8")
    say(f"pages: {time.monotonic() - began:.0f} s")
    return place.html / "index.html"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis build", description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default=REFERENCE, help="a folder of data/measured/")
    parser.add_argument("--source", default="recorded", choices=("recorded", "live"), help="live: measure first")
    parser.add_argument("--strict", action="store_true", help="fail where the committed record contradicts the book")
    options = parser.parse_args(arguments)
    try:
        say(str(build(options.gpu, options.source, options.strict)))
    except (BuildError, DataError) as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    return 0
