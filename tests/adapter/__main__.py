"""Trials of `fused_pe.examples.llama` with the installed wheel, in an empty folder.

python -m tests.adapter      run them and record data/families.csv
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.wheel import ROOT, unpacked

TRIALS = Path(__file__).with_name("trials.py")
RECORDED = ROOT / "data" / "families.csv"


def tried(folder: Path) -> Path:
    """The table that the trials write. Raises: AssertionError with what they say where one fails."""
    empty = folder / "empty"
    empty.mkdir()
    shutil.copy(TRIALS, empty / "test_trials.py")
    found = {"PYTHONPATH": str(unpacked(folder)), "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=empty, env=os.environ | found, capture_output=True, text=True)
    assert "No module named 'transformers'" not in done.stdout, "transformers is not installed: make test-deep"
    assert done.returncode == 0, done.stdout + done.stderr
    return empty / "families.csv"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(tried(Path(name)), RECORDED)
