"""Build the book: execute the notebooks on the recorded measurements, then render the pages.

    python -m analysis build --gpu nvidia-h200

Notebooks are executed again only when something they read has changed.
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
import yaml

from ...records.files import DATA, REFERENCE, ROOT, DataError, gpu_folder, known_gpus
from ...records.measured import Measured
from ...records.published import load as load_published
from .. import figures, pages, templates
from ..findings import Finding, broken, recorded
from ..front import five, readme
from ..notebook import load, try_load
from ..style import folder
from .check import faults, mend

NOTEBOOKS = ROOT / "analysis" / "notebooks"
CHAPTERS = ROOT / "book" / "chapters"
BUILD = ROOT / "_build"
HTML = BUILD / "html"
README = ROOT / "README.md"
KEY = CHAPTERS / "built-from.txt"
VERSION_PAGES = "book/chapters/versions"  # the chapter that has a page of every version below it
AT_ONCE = 3  # on two cores: a kernel that starts or ends waits more than it works


class BuildError(RuntimeError):
    """The book could not be built; the message says why."""


def say(text: str) -> None:
    print(f"[book] {text}", flush=True)


def contents() -> list[str]:
    """The pages of _toc.yml, the front page first."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *(chapter["file"] for chapter in toc["chapters"])]


def write_contents() -> Path:
    """_toc.yml with the pages of the versions, which are made from data, below their chapter."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    for chapter in toc["chapters"]:
        if chapter["file"] == VERSION_PAGES:
            chapter["sections"] = pages.contents()
    path = BUILD / "_toc.yml"
    BUILD.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")
    return path


def inputs(gpu: str) -> list[Path]:
    """Every file that the executed notebooks depend on."""
    code = [path for folder in ("analysis", "kernels") for path in (ROOT / folder).rglob("*.py")]
    cards = [gpu, *known_gpus()]  # one chapter compares them
    data = [*{path for card in cards for path in gpu_folder(card).glob("*")}, *DATA.glob("*.csv"), *DATA.glob("*.yml")]
    texts = [*NOTEBOOKS.glob("*.ipynb"), *templates.FOLDER.glob("*.md")]
    return sorted([*code, *data, *texts, ROOT / "requirements.txt"])


def content_key(gpu: str) -> str:
    digest = hashlib.sha256(f"{gpu} {sys.version}".encode())
    for path in inputs(gpu):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def execute(notebook: Path, output: Path, gpu: str) -> float:
    """Execute one notebook and hide what papermill added. Returns seconds. Raises: BuildError with the cell's error."""
    began = time.monotonic()
    scratch = output.with_suffix(".part.ipynb")
    try:
        papermill.execute_notebook(
            str(notebook), str(scratch), {"gpu": gpu, "source": "recorded"}, kernel_name="python3", progress_bar=False,
            cwd=str(ROOT), log_output=False,
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


def _kernels_speak_to(log: str) -> None:
    """Send what kernels print beside their notebooks to a file."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())


def execute_all(gpu: str) -> None:
    """Bring book/chapters up to date. Raises: BuildError, DataError."""
    names = [Path(page).name for page in contents() if page.startswith("book/chapters/")]
    current = content_key(gpu)
    built = KEY.read_text(encoding="utf-8").strip() if KEY.exists() else ""
    needed = [folder(gpu), pages.FOLDER, *(CHAPTERS / f"{name}.ipynb" for name in names)]
    if built == current and all(path.exists() for path in needed):
        say("notebooks: nothing has changed since they were executed")
        return
    shutil.rmtree(CHAPTERS, ignore_errors=True)
    CHAPTERS.mkdir(parents=True)
    BUILD.mkdir(exist_ok=True)
    with ProcessPoolExecutor(AT_ONCE, get_context("spawn"), _kernels_speak_to, (str(BUILD / "kernels.log"),)) as pool:
        written = pool.submit(pages.write, gpu)  # the longest first
        running = {
            pool.submit(execute, NOTEBOOKS / f"{name}.ipynb", CHAPTERS / f"{name}.ipynb", gpu): name for name in names
        }
        try:
            for done, future in enumerate(as_completed(running), 1):
                say(f"notebook {done} of {len(names)}: {running[future]}, {future.result():.0f} s")
            say(f"pages of versions: {len(written.result())}")
        except BuildError:
            pool.shutdown(cancel_futures=True)
            raise
    KEY.write_text(current + "\n", encoding="utf-8")


def render() -> None:
    """Run Jupyter Book, warnings as errors. Raises: BuildError."""
    command = Path(sys.executable).with_name("jupyter-book")
    began = time.time()
    say("rendering the pages")
    options = ["--toc", str(write_contents()), "--all", "-W", "-n", "--keep-going", "--path-output", str(ROOT)]
    result = subprocess.run(
        [str(command), "build", str(ROOT), *options],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    log = BUILD / "book.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text(result.stdout + result.stderr, encoding="utf-8")
    if result.returncode:
        said = [line for line in (result.stdout + result.stderr).splitlines() if re.search("WARNING|ERROR|rror:", line)]
        raise BuildError("\n".join([f"the pages did not build; all that was said is in {log}", *said[:20]]))
    for page in [*contents(), "index"]:
        if not (HTML / f"{page}.html").is_file():
            raise BuildError(f"no page written: {HTML / page}.html")
    say(f"pages: {time.time() - began:.0f} s")


def publish_figures(gpu: str) -> None:
    """Copy the figures to where the pages link to them."""
    shutil.copytree(folder(gpu), HTML / "book" / "figures", dirs_exist_ok=True)


def findings_of(chapter: str) -> list[Finding]:
    """What the findings of an executed chapter recorded."""
    return list(recorded(nbformat.read(CHAPTERS / f"{chapter}.ipynb", as_version=4).cells))


def tell_findings(gpu: str, strict: bool) -> None:
    """Say which findings do not hold on a GPU. Raises: BuildError where that is strict."""
    chapters = [Path(page).name for page in contents() if page.startswith("book/chapters/")]
    findings = [each for chapter in chapters for each in findings_of(chapter)]
    wrong = broken(findings)
    said = [f"findings: {len(findings) - len(wrong)} of {len(findings)} hold on {gpu}", *wrong]
    if wrong and strict:
        raise BuildError("\n".join(said))
    say("\n".join(said))


def readme_of(evidence: Measured) -> str:
    """The README with what two chapters found, or as it is where a finding of these does not hold."""
    text, findings, use = README.read_text(encoding="utf-8"), findings_of("index"), findings_of("use")
    if broken([*findings, *use]):
        return text
    plot = figures.rope_ladder_2048(evidence, try_load(evidence.slug, "beyond"))
    return readme(text, findings, plot, five(evidence), use)


def build(gpu: str, source: str = "recorded", strict: bool = False) -> Path:
    """Build the book for one GPU and return its page; `strict` fails on a finding that does not hold.

    Raises: BuildError, DataError.
    """
    # A damaged file is one message here, not the same failure in every notebook.
    try:
        evidence = load(gpu, source)
    except RuntimeError as error:  # no GPU to measure on, or measuring failed
        raise BuildError(str(error)) from error
    gpu = evidence.slug
    load_published()
    execute_all(gpu)
    tell_findings(gpu, strict)
    if gpu == REFERENCE:
        README.write_text(readme_of(evidence), encoding="utf-8")
    render()
    publish_figures(gpu)
    mend(HTML)
    found = faults(HTML)
    if found:
        raise BuildError("\n".join([f"the pages have {len(found)} faults", *found[:20]]))
    return HTML / "index.html"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis build", description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default=REFERENCE, help="a folder of data/measured/")
    parser.add_argument("--source", default="recorded", choices=("recorded", "live"), help="live: measure first")
    parser.add_argument("--strict", action="store_true", help="fail on a finding that does not hold")
    options = parser.parse_args(arguments)
    try:
        say(str(build(options.gpu, options.source, options.strict)))
    except (BuildError, DataError) as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    return 0
