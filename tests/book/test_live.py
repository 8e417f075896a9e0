"""Notebooks on the card at hand, run cell by cell in their own folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from analysis.book.build import NOTEBOOKS, ROOT
from analysis.measure.workers import MeasureError

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
ROPE = ("log", "ablation", "slices", "filled", "beyond")  # what the chapter shows


def test_notebook_says_in_one_sentence_that_nothing_can_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert asked["rope"].split() == [*ROPE] and asked["v8"] == "beyond peers embeddings heldout map"
