"""Build the book of a GPU in `_build/<gpu>/html`: execute the notebooks on its measurements, then render the pages.

Beside html/ lie source/, what Jupyter Book takes (executed chapters, pages of the versions, copies of what stays), and
figures/, each figure as SVG, PNG and CSV. Everything is of one card, and made anew.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import yaml
from sphinx_external_toc.parsing import MalformedError, parse_toc_yaml

from .. import figures, findings
from ..claims import judge
from ..evidence import Evidence, measured
from ..record.files import BUILD, DATA, REFERENCE, ROOT, DataError
from ..record.runs import summary
from ..studies import STUDIES
from ..tables.steps import fusions
from . import citing, edition, numbers, pages, saving
from .check import faults
from .edition import CODE_LICENSE, LICENSE, LICENSE_URL
from .execute import BuildError, execute, side_by_side
from .notebook import FIGURE, TABLE, load, paragraph
from .numbers import NOTEBOOKS

README = ROOT / "README.md"
FOUND = ("front-loads", "front-checks", "front-wave", "front-v8")  # the findings that it shows
MARKS = ("<!-- found -->", "<!-- /found -->")  # in it: between them stands what is made from data
CHAPTER = re.compile(r"\]\((\w+)\.(?:ipynb|html)(?:#[\w-]+)?\)")  # a link between chapters; a finding links to pages
CONFIG, TOC = "_config.yml", "_toc.yml"
CHAPTERS, VERSIONS = "book/chapters", "book/versions"
FIGURES = "book/figures"  # where pages link to them, and where the README's lies
INDEX = "book/figure-index"  # a page in no contents: the foot of every page leads there, by book/_templates
KEPT = ("book/_static", "book/_templates", "book/references.bib", "book/scorer.js")
MADE_UP = "<b>Made up, for tests.</b> No card measured these numbers."
LONGEST = "compare"  # of the chapters, so that it does not end alone


def say(text: str) -> None:
    print(f"[book] {text}", flush=True)


def settings() -> dict[str, Any]:
    """The content of _config.yml."""
    try:
        return dict(yaml.safe_load((ROOT / CONFIG).read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise BuildError(f"{CONFIG}: {' '.join(str(error).split())}") from None


def contents() -> list[str]:
    """The pages of _toc.yml, the front page first, as Jupyter Book reads it."""
    try:
        found = list(parse_toc_yaml(ROOT / TOC))
    except (MalformedError, yaml.YAMLError) as error:
        raise BuildError(f"{TOC}: {' '.join(str(error).split())}") from None
    for page in found:
        name = page.removeprefix(f"{CHAPTERS}/")
        path = NOTEBOOKS / f"{name}.ipynb" if name != page else ROOT / f"{page}.md"
        if not path.is_file():
            raise BuildError(f"{TOC}: the entry {page} has no {path.relative_to(ROOT)}")
    return found


def chapters() -> list[str]:
    """The names of the pages that are notebooks."""
    return [Path(page).name for page in contents() if page.startswith(f"{CHAPTERS}/")]


def execute_all(e: Evidence, source: Path) -> None:
    """Execute the chapters and write the pages of the versions; figures are drawn on the way."""
    e.record.read()
    judge.recorded(e.record)
    (source / CHAPTERS).mkdir(parents=True)
    tasks: dict[str, Any] = {"pages of versions": partial(pages.write, e, source / VERSIONS)}
    for name in sorted(chapters(), key=LONGEST.__ne__):
        tasks[name] = partial(execute, NOTEBOOKS / f"{name}.ipynb", source / CHAPTERS / f"{name}.ipynb", e.slug)
    for done, name in enumerate(side_by_side(tasks), 1):
        say(f"executed {done} of {len(tasks)}: {name}")


def figure_index(source: Path) -> str:
    """By chapter a thumbnail of each figure of the executed chapters, which leads to where it stands first, and a line
    for each table."""
    seen, parts = set[str](), []
    for name in chapters():
        cells, items, tables = nbformat.read(source / CHAPTERS / f"{name}.ipynb", as_version=4).cells, [], []
        for output in (output for cell in cells for output in cell.get("outputs", ())):
            figure, table = (output.get("metadata", {}).get(kind) for kind in (FIGURE, TABLE))
            if table:
                address = f"chapters/{name}.html#{table['id']}"
                tables.append(f"<li><a href='{address}'>{table['title']}</a> <code>{table['id']}</code></li>")
            if figure and figure["id"] not in seen:
                seen.add(figure["id"])
                items.append(
                    f"<li><a href='chapters/{name}.html#figure-{figure['id']}'>"
                    f"<img src='figures/{figure['id']}.png' alt='{escape(figure['alt'], quote=True)}' loading='lazy'>"
                    f"{escape(figure['title'])}</a><br><small>{figure['told']}</small></li>"
                )
        if items or tables:
            titles = [each.source.partition("\n")[0][2:] for each in cells if each.source.startswith("# ")]
            parts.append(f"## {(*titles, 'Front page')[0]}\n")
            parts += [f"<ul class='figure-index'>{''.join(items)}</ul>\n"] * bool(items)
            parts += [f"Tables:\n\n<ul>{''.join(tables)}</ul>\n"] * bool(tables)
    told = "Each figure and table leads to its place in the book, where its files, its data and how to cite it are."
    return "\n".join([f"{pages.HEAD}# Figures and tables\n\n{told}\n", *parts])


def footer(e: Evidence) -> str:
    """The foot of every page as HTML: version, commit, card, date and licence."""
    this, days = edition.edition(), sorted({run.date for run in measured(e, *STUDIES).runs})
    changed = " and unreleased changes" if "\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text("utf-8") else ""
    places = {"Source": this.repository, "DOI": f"https://doi.org/{this.doi}" if this.doi else ""}
    return " ".join(
        [
            f"Version {this.version} of {this.date}{changed}, commit {citing.this_commit()}.",
            f"{e.card}: measured {' to '.join(sorted({days[0], days[-1]}))}." if days else f"{e.card}.",
            f'Text, figures and data: <a href="{LICENSE_URL}">{LICENSE}</a>. Code: {CODE_LICENSE}.',
            *(f'<a href="{escape(address)}">{words}</a>.' for words, address in places.items() if address),
        ]
    )


def stage(e: Evidence, source: Path) -> None:
    """Put beside the executed chapters what is the same for every card; _config.yml gets what the edition says, the
    footer, and a banner where the card is made up."""
    this, config = edition.edition(), settings()
    config |= {"author": ", ".join(this.maintainers) or edition.NOBODY, "copyright": this.year}
    config["html"] = {**(config.get("html") or {}), "extra_footer": footer(e), "baseurl": this.url}
    if e.gpu.get("made_up"):
        config["sphinx"]["config"]["html_theme_options"]["announcement"] = MADE_UP
    (source / CONFIG).write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    (source / f"{INDEX}.md").write_text(figure_index(source), encoding="utf-8")
    written = [f"{page}.md" for page in contents() if not page.startswith(f"{CHAPTERS}/")]
    for name in (TOC, *KEPT, *written):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, source / name)


def verify(e: Evidence, strict: bool) -> None:
    """Say which findings do not hold and which figures differ. Raises: BuildError for the committed record, if strict.

    Findings are written for that record: on another card it is an answer that one does not hold, and no fault.
    """
    said, wrong = findings.report(e), list[str]()
    if e.record.is_reference:
        wrong = findings.broken()
        if differ := saving.differing(saving.folder(e.slug)):
            wrong.append(f"{len(differ)} CSVs differ from {saving.CHECKSUMS.relative_to(ROOT)}: {', '.join(differ)}")
        if numbers.differs():
            wrong.append("data/numbers.csv is not what the findings show: python -m analysis number writes it")
    if wrong and strict:
        raise BuildError("\n".join(wrong))
    say("\n".join([*said, *wrong]))


def readme(text: str, e: Evidence) -> str:
    """`text` of the README with findings, figure and ladder between their marks."""
    plot, (start, end) = figures.fusing(e), MARKS
    found = "\n".join(f"{number}. {paragraph(e, each)}" for number, each in enumerate(FOUND, start=1))
    image = f"![{plot.alt}]({FIGURES}/{plot.id}.png)"
    made = CHAPTER.sub(r"](analysis/notebooks/\1.ipynb)", f"{found}\n\n{image}\n\n{plot.caption}")
    ladder = fusions(e)
    rule = ["---" if name in ladder.header[:2] else "--:" for name in ladder.header[:-1]] + ["---"]
    rows = "\n".join(f"| {' | '.join(cells)} |" for cells in (ladder.header, rule, *ladder.rows))
    made += f"\n\n{ladder.caption}\n\n{rows}"
    if start not in text or end not in text:
        raise DataError(f"README.md lacks {start} or {end}, between which what is made from data belongs")
    return f"{text[: text.index(start)]}{start}\n\n{made}\n\n{text[text.index(end) :]}"


def render(folder: Path) -> Path:
    """Run Jupyter Book, warnings as errors, and return the folder of the pages."""
    say("rendering the pages")
    built = folder / "_build"  # Jupyter Book's own name for it
    shutil.rmtree(built, ignore_errors=True)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", folder / "source", "--path-output", folder]
    result = subprocess.run(
        [*map(str, command), "--all", "-W", "-n", "--keep-going"],
        cwd=ROOT, capture_output=True, encoding="utf-8", errors="replace",
        env={**os.environ, "NO_COLOR": "1", "PYTHONUTF8": "1"},
    )  # fmt: skip
    log = folder / "book.log"
    log.write_text(result.stdout + result.stderr, encoding="utf-8")
    if result.returncode:
        said = [line for line in (result.stdout + result.stderr).splitlines() if re.search("WARNING|ERROR|rror:", line)]
        raise BuildError("\n".join([f"the pages did not build; all that was said is in {log}", *said[:20]]))
    return built / "html"


def build(gpu: str, strict: bool = False) -> Path:
    """Build the book for one GPU and return its first page; `strict` fails on what its own record contradicts."""
    _ = contents(), settings(), edition.edition()  # first: a slip in them would show at the end
    e = load(gpu)  # a damaged file is one message here, not the same failure in every notebook
    say(f"{e.slug}: {summary(e.record.folder)}")
    folder = BUILD / e.slug
    source, html = folder / "source", folder / "html"
    for made in (source, saving.folder(e.slug)):
        shutil.rmtree(made, ignore_errors=True)
    execute_all(e, source)
    verify(e, strict)
    if e.record.is_reference:  # what the README shows
        README.write_text(readme(README.read_text(encoding="utf-8"), e), encoding="utf-8")
        for name in ("front.png", "front.csv"):
            shutil.copyfile(saving.folder(e.slug) / name, ROOT / FIGURES / name)
    stage(e, source)
    built = render(folder)
    shutil.copytree(saving.folder(e.slug), built / FIGURES, dirs_exist_ok=True)
    shutil.copyfile(DATA / "published.csv", built / "book" / "published.csv")
    if found := faults(built):
        raise BuildError("\n".join([f"the pages in {built} have {len(found)} faults", *found[:20]]))
    shutil.rmtree(html, ignore_errors=True)
    os.replace(built, html)
    return html / "index.html"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis build", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", default=REFERENCE, help="a folder of data/measured/")
    parser.add_argument("--strict", action="store_true", help="fail where the committed record contradicts the book")
    options = parser.parse_args(arguments)
    say(str(build(options.gpu, options.strict)))
    return 0
