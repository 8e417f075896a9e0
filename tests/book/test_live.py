"""Notebooks on the card at hand: run cell by cell in their own folder, and by the README's command."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from analysis.book.build import NOTEBOOKS, ROOT
from analysis.evidence import Evidence
from analysis.measure.workers import MeasureError
from tests.measure.stub_card import CARD

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
ROPE = ("log", "ablation", "matched", "filled")  # what the chapter shows
STARTUP = "from tests.measure import stub_work\n\nstub_work.insert()\n"


def code(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_finds_the_packages_and_names_the_card_only_to_load_it(path: Path) -> None:
    """Measured live the card is another than `gpu`: what follows asks the evidence which."""
    start, parameters, *rest = code(path)
    assert start.startswith('import sys\n\nsys.path.append("../..")')
    assert "whatever `gpu` says" in parameters
    nodes = [node for source in rest for node in ast.walk(ast.parse(source))]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    loads = [call for call in calls if ast.unparse(call.func) in ("load", "chapter.load")]
    assert loads and all([ast.unparse(given) for given in load.args[:2]] == ["gpu", "source"] for load in loads)
    assert sum(isinstance(node, ast.Name) and node.id == "gpu" for node in nodes) == len(loads)


def test_a_notebook_says_in_one_sentence_that_nothing_can_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    shell = InteractiveShell(user_ns={"MeasureError": MeasureError})
    shell.run_cell("raise MeasureError('no CUDA GPU is visible')", store_history=False)
    said = capsys.readouterr()
    assert said.out + said.err == "no CUDA GPU is visible\n"


@pytest.mark.deep
def test_every_notebook_runs_in_its_own_folder_on_the_card_at_hand(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["FUSED_PE_DATA"] = str(tmp_path / "measured")
    command = [sys.executable, "-P", str(ROOT / "tests" / "book" / "from_own_folder.py")]
    done = subprocess.run(command, cwd=NOTEBOOKS, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    asked = dict(re.findall(r"^asked (\w+) (.+)$", done.stdout, re.MULTILINE))
    assert set(asked) == {path.stem for path in PATHS}
    assert asked["rope"].split() == [*ROPE] and asked["fuse"] == "map split_keys" and asked["v8"].split()[-1] == "tune"


def by_the_readme(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The README's command with the paths of the test, from the root, with no environment activated."""
    (written,) = re.findall(r"^\.venv/bin/papermill (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    arguments = written.replace("out.ipynb", str(tmp_path / "out.ipynb")).split()
    own = {"FUSED_PE_DATA": str(tmp_path / "measured"), "IPYTHONDIR": str(tmp_path / "ipython")}
    program = Path(sys.executable).with_name("papermill")
    plain = {**os.environ, "PATH": os.defpath, **own, **environment}
    return subprocess.run([str(program), *arguments], cwd=ROOT, env=plain, capture_output=True, text=True)


@pytest.mark.deep
def test_the_command_of_the_readme_measures_and_shows_the_card_at_hand(tmp_path: Path) -> None:
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "stub.py").write_text(STARTUP)
    done = by_the_readme(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "time, process 2 of 2: 100%" in done.stderr and done.stderr.count("process 2 of 2:") < 20
    for study in ROPE:
        assert Evidence.load(tmp_path / "measured" / CARD["slug"]).study(study).processes == 2
    shown = str(nbformat.read(tmp_path / "out.ipynb", as_version=4).cells)
    assert CARD["name"] in shown


@pytest.mark.deep
def test_the_command_of_the_readme_without_a_gpu_ends_with_one_sentence(tmp_path: Path) -> None:
    done = by_the_readme(tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()
    assert "no CUDA GPU is visible to torch on this machine" in last[-1] and last[-2].startswith("Exception")
    assert not (tmp_path / "measured").exists()
