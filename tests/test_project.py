"""What holds the project together: one set of pins, commands that exist, nothing of one machine in the files."""

import ast
import json
import re
import subprocess
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

from analysis.book.site.place import MADE, contents

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(r'^[a-z0-9][a-z0-9.-]*==[0-9][0-9a-z.]*( ; python_version == "3\.1[123]")?$')
# Written in pieces, so that this file does not hold them itself.
FOREIGN = {
    "registry host": re.compile(r"py" r"pi\.org|python" r"hosted|index" r"-url|registry\.npm" r"js|ana" r"conda\.org"),
    "machine path": re.compile(r"(?<![\w.])/(wo" r"rk|ro" r"ot|ho" r"me/\w+)/"),
}


NOT_ARCHIVED = {".git", ".venv", "_build", "build", "cluster", "__pycache__", ".mypy_cache", ".ruff_cache"}


@cache
def committed() -> list[Path]:
    """The files a commit would hold: tracked, or new and not ignored; all that are not made, in an archive."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        ours = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        found = [str(path) for path in ours if not NOT_ARCHIVED & set(path.parts)]
    return [ROOT / name for name in sorted(found) if name and (ROOT / name).is_file()]


def pins(path: str = "requirements.txt") -> list[str]:
    lines = (ROOT / path).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def notebooks() -> list[Path]:
    return [path for path in committed() if path.suffix == ".ipynb"]


def test_no_file_is_too_large_to_host() -> None:
    assert {str(path): size for path in committed() if (size := path.stat().st_size) >= 45e6} == {}


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-cuda12.txt"])
def test_every_requirement_is_an_exact_pin(lock: str) -> None:
    assert pins(lock)
    assert [line for line in pins(lock) if not PIN.match(line)] == []
    names = [line.split("==")[0] for line in pins(lock)]
    assert len(names) == len(set(names)), "a package is pinned twice"


def test_snakemake_is_pinned_beside_the_pins_of_the_book() -> None:
    beside = pins("workflow/requirements.txt")
    assert beside and [line for line in beside if not PIN.match(line)] == []
    assert not {line.split("==")[0] for line in beside} & {line.split("==")[0] for line in pins()}


def test_conda_environment_installs_the_same_pins() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, through_pip = environment["dependencies"]
    assert python in ("python=3.11", "python=3.12", "python=3.13")
    assert pip == "pip"
    assert through_pip == {"pip": ["-r requirements.txt"]}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "workflow/README.md", ".ci/run"])
def test_commands_named_in_prose_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)|^step (\S+)", text, re.MULTILINE))
    named = {prose or script for prose, script in named}
    assert named
    assert named <= targets()


def test_files_named_in_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    rows = re.findall(r"^\| `([a-z]+)/` \|", text, re.MULTILINE)
    assert rows
    assert [name for name in links + rows if not (ROOT / name.split("#")[0]).exists()] == []


def test_citation_parses_and_names_the_write_up() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(citation)
    assert [author["family-names"] for author in citation["references"][0]["authors"]] == ["Goel", "Yu"]


def test_versions_of_the_project_agree() -> None:
    project = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert project and project[1] == yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]


def test_no_registry_host_and_no_machine_path_is_written_down() -> None:
    found = []
    for path in committed():
        if "mathjax" in path.parts or path.suffix in (".png", ".pdf", ".svg"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for kind, form in FOREIGN.items():
            found += [f"{path.relative_to(ROOT)}: {kind}: {hit[0]}" for hit in form.finditer(text)]
    assert found == []


def test_committed_notebooks_hold_no_outputs_and_no_functions() -> None:
    for path in notebooks():
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] != "code":
                continue
            assert not cell["outputs"] and cell["execution_count"] is None, f"{path.name} holds outputs"
            source = "".join(cell["source"])
            assert not re.search(r"^\s*(def|class|async def) ", source, re.MULTILINE), f"{path.name} defines a function"


def test_the_book_asks_nothing_of_the_network() -> None:
    """Configuration only; that the built page holds no outside address is seen where the book is built."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    assert config["execute"]["execute_notebooks"] == "off"
    assert config["only_build_toc_files"] is True
    own = config["sphinx"]["config"]
    assert own["nb_ipywidgets_js"] == {}
    (static,) = own["html_static_path"]
    for name in [own["mathjax_path"], *own["html_css_files"]]:
        assert (ROOT / static / name).is_file()
    assert (ROOT / static / "mathjax" / "LICENSE").is_file()


def test_every_page_of_the_contents_has_a_source() -> None:
    assert contents()
    for page in contents():
        if page in MADE:
            continue
        executed = page.startswith("book/chapters/")
        source = f"analysis/notebooks/{Path(page).name}.ipynb" if executed else f"{page}.md"
        assert (ROOT / source).is_file(), f"{page} has no source {source}"


def imports(folder: Path) -> dict[str, set[str]]:
    """The modules of `folder` that each of them imports, inside functions and for type checking too."""
    files = {".".join(path.relative_to(folder.parent).with_suffix("").parts): path for path in folder.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        targets: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                start = package[: len(package) + 1 - node.level] if node.level else []
                base = ".".join([*start, *(node.module or "").split(".")]).rstrip(".")
                names = {f"{base}.{alias.name}" for alias in node.names}
                targets |= {name if name in modules else base for name in names}
        graph[name] = targets & modules.keys() - {name}
    return graph


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize("folder", ["kernels", "analysis"])
def test_imports_go_one_way(folder: str) -> None:
    assert circle(imports(ROOT / folder)) == []


def test_an_import_in_a_function_closes_a_circle(tmp_path: Path) -> None:
    folder = tmp_path / "house"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "__init__.py").write_text("from .b import x\n")
    (folder / "inner" / "b.py").write_text("def f():\n    from .. import a\n")
    (folder / "a.py").write_text("from house.inner.b import f\n")
    assert set(circle(imports(folder))) == {"house.a", "house.inner.b"}
