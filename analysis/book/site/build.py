"""Build the book: execute the notebooks on the recorded measurements, then render the pages.

    python -m analysis build --gpu nvidia-h200
    python -m analysis --data DIR build --gpu <a folder of DIR>

The book of a GPU is `_build/<gpu>/html`. Notebooks are executed again only when something they read has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import nbformat
import papermill

from ...records.files import DATA, REFERENCE, ROOT, DataError, digest, gpu_folder, is_committed, known_gpus
from ...records.measured import Measured
from ...records.published import load as load_published
from ...verdicts import claims
from .. import figures, pages, templates
from ..edition import CITATION, SETTINGS
from ..findings import Finding, broken, recorded
from ..front import five, readme
from ..notebook import load, try_load
from ..saving import folder
from . import engine, warm
from . import made as made_pages
from .check import banner, faults, mend
from .imprint import footer
from .place import Place, chapters, contents

NOTEBOOKS = ROOT / "analysis" / "notebooks"
README = ROOT / "README.md"
AT_ONCE = 2
LONGEST = "compare"  # of the chapters, so that it does not end alone


class BuildError(RuntimeError):
    """The book could not be built; the message says why."""


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


def content_key(gpu: str) -> str:
    return hashlib.sha256(f"{gpu} {sys.version} {digest(inputs(gpu))}".encode()).hexdigest()


def execute(notebook: Path, output: Path, gpu: str) -> float:
    """Execute one notebook and hide what papermill added. Returns seconds. Raises: BuildError with the cell's error."""
    began = time.monotonic()
    scratch = output.with_suffix(".part.ipynb")
    try:
        papermill.execute_notebook(
            str(notebook), str(scratch), {"gpu": gpu, "source": "recorded"}, kernel_name="python3", progress_bar=False,
            cwd=str(ROOT), log_output=False, engine_name=engine.NAME,
        )  # fmt: skip
    except papermill.PapermillExecutionError as error:
        raise BuildError(f"{notebook.name}, cell {error.exec_count}: {error.ename}: {error.evalue}") from None
    executed = nbformat.read(scratch, as_version=4)
    scratch.unlink()
    executed.metadata.pop("papermill", None)  # paths and times of this machine
    for cell in executed.cells:
        for added in ("papermill", "execution"):
            cell.metadata.pop(added, None)
        if cell.cell_type == "code":
            for result in cell.outputs:
                if result.output_type == "error":
                    raise BuildError(f"{notebook.name}: {result.ename}: {result.evalue}")
            if "injected-parameters" in cell.metadata.get("tags", []):
                cell.metadata["tags"].append("remove-cell")
    nbformat.write(executed, output)
    return time.monotonic() - began


def _speak_to(log: str) -> None:
    """Send what a chapter prints beside its cells to a file."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())


def execute_all(gpu: str) -> None:
    """Bring the executed chapters and the pages of the versions up to date. Raises: BuildError, DataError."""
    place, names, current = Place.of(gpu), chapters(), content_key(gpu)
    claims.verdicts_of(gpu)  # computed once, where they are not recorded, for all chapters
    built = place.key.read_text(encoding="utf-8").strip() if place.key.exists() else ""
    needed = [folder(gpu), place.versions, *(place.chapters / f"{name}.ipynb" for name in names)]
    if built == current and all(path.exists() for path in needed):
        say("notebooks: nothing has changed since they were executed")
        return
    shutil.rmtree(place.source, ignore_errors=True)
    place.chapters.mkdir(parents=True)
    log = str(place.folder / "chapters.log")
    processes = get_context("forkserver")  # each chapter has its own, forked from one that has imported and read all
    processes.set_forkserver_preload([__name__, warm.__name__])
    os.environ[warm.CARD] = gpu
    with ProcessPoolExecutor(AT_ONCE, processes, _speak_to, (log,), max_tasks_per_child=1) as pool:
        written = pool.submit(pages.write, gpu, place.versions)  # the longest first
        running = {
            pool.submit(execute, NOTEBOOKS / f"{name}.ipynb", place.chapters / f"{name}.ipynb", gpu): name
            for name in sorted(names, key=LONGEST.__ne__)
        }
        try:
            for done, future in enumerate(as_completed(running), 1):
                say(f"notebook {done} of {len(names)}: {running[future]}, {future.result():.0f} s")
            say(f"pages of versions: {len(written.result())}")
        except BuildError:
            pool.shutdown(cancel_futures=True)
            raise
    place.key.write_text(current + "\n", encoding="utf-8")


def render(place: Place, footer: str = "") -> Path:
    """Run Jupyter Book, warnings as errors, and return the folder of the pages. Raises: BuildError."""
    command = Path(sys.executable).with_name("jupyter-book")
    began = time.time()
    say("rendering the pages")
    place.stage(footer)
    made = place.folder / "_build"  # Jupyter Book's own name for it
    shutil.rmtree(made, ignore_errors=True)
    options = ["--all", "-W", "-n", "--keep-going", "--path-output", str(place.folder)]
    result = subprocess.run(
        [str(command), "build", str(place.source), *options],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    log = place.folder / "book.log"
    log.write_text(result.stdout + result.stderr, encoding="utf-8")
    if result.returncode:
        said = [line for line in (result.stdout + result.stderr).splitlines() if re.search("WARNING|ERROR|rror:", line)]
        raise BuildError("\n".join([f"the pages did not build; all that was said is in {log}", *said[:20]]))
    for page in [*contents(), "index"]:
        if not (made / "html" / f"{page}.html").is_file():
            raise BuildError(f"no page written: {made / 'html' / page}.html")
    say(f"pages: {time.time() - began:.0f} s")
    return made / "html"


def findings_of(place: Place, chapter: str) -> list[Finding]:
    """What the findings of an executed chapter recorded."""
    return list(recorded(nbformat.read(place.chapters / f"{chapter}.ipynb", as_version=4).cells))


def tell_findings(gpu: str, place: Place, strict: bool) -> None:
    """Say which findings do not hold on a GPU. Raises: BuildError where that is strict, of the committed record alone.

    Findings are written for that record: on another card it is an answer that one does not hold, and no fault.
    """
    findings = [each for chapter in chapters() for each in findings_of(place, chapter)]
    wrong = broken(findings)
    said = [f"findings: {len(findings) - len(wrong)} of {len(findings)} hold on {gpu}", *wrong]
    if wrong and strict and is_committed(gpu):
        raise BuildError("\n".join(said))
    say("\n".join(said))


def readme_of(evidence: Measured) -> str:
    """The README with what two chapters found, or as it is where a finding of these does not hold."""
    place, text = Place.of(evidence.slug), README.read_text(encoding="utf-8")
    findings, use = findings_of(place, "index"), findings_of(place, "use")
    if broken([*findings, *use]):
        return text
    plot = figures.fusing(evidence, *(try_load(evidence.slug, study) for study in ("beyond", "matched")))
    return readme(text, findings, plot, five(evidence), use)


def build(gpu: str, source: str = "recorded", strict: bool = False) -> Path:
    """Build the book for one GPU and return its page; `strict` fails on a finding that its own record contradicts.

    Raises: BuildError, DataError.
    """
    # A damaged file is one message here, not the same failure in every notebook.
    try:
        evidence = load(gpu, source)
    except RuntimeError as error:  # no GPU to measure on, or measuring failed
        raise BuildError(str(error)) from error
    gpu, place = evidence.slug, Place.of(evidence.slug)
    load_published()
    execute_all(gpu)
    tell_findings(gpu, place, strict)
    if is_committed(gpu):
        README.write_text(readme_of(evidence), encoding="utf-8")
    made_pages.write(place, evidence)
    made = render(place, footer(evidence))
    shutil.copytree(folder(gpu), made / "book" / "figures", dirs_exist_ok=True)  # where the pages link to them
    mend(made, banner(evidence.gpu))
    found = faults(made)
    if found:
        raise BuildError("\n".join([f"the pages in {made} have {len(found)} faults", *found[:20]]))
    place.publish(made)
    return place.html / "index.html"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis build", description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default=REFERENCE, help="a folder of data/measured/")
    parser.add_argument("--source", default="recorded", choices=("recorded", "live"), help="live: measure first")
    parser.add_argument("--strict", action="store_true", help="fail where the committed record contradicts a finding")
    options = parser.parse_args(arguments)
    try:
        say(str(build(options.gpu, options.source, options.strict)))
    except (BuildError, DataError) as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    return 0
