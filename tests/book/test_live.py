"""Notebooks on the card at hand: run cell by cell in their own folder, and by papermill."""

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
ROPE = ("log", "ablation", "slices", "filled")  # what the chapter shows
STARTUP = "from tests.measure import stub_work\n\nstub_work.insert()\n"


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
    asked = dict(re.findall(r"^asked (\S+) (.+)$", done.stdout, re.MULTILINE))
    assert set(asked) == {path.stem for path in PATHS}
    assert asked["rope"].split() == [*ROPE] and asked["v8"] == "beyond peers embeddings map"


@pytest.mark.deep
def test_papermill_measures_and_shows_the_card_at_hand(tmp_path: Path) -> None:
    """From the root, with no environment activated."""
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "stub.py").write_text(STARTUP)
    program, output = Path(sys.executable).with_name("papermill"), tmp_path / "out.ipynb"
    command = [program, "analysis/notebooks/rope.ipynb", output, "-p", "source", "live", "--log-output"]
    own = {"FUSED_PE_DATA": str(tmp_path / "measured"), "IPYTHONDIR": str(tmp_path / "ipython")}
    plain = {**os.environ, "PATH": os.defpath, **own}
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "time, process 2 of 2: 100%" in done.stderr and done.stderr.count("process 2 of 2:") < 20
    for study in ROPE:
        assert Evidence.load(tmp_path / "measured" / CARD["slug"]).study(study).processes == 2
    assert CARD["name"] in str(nbformat.read(output, as_version=4).cells)
