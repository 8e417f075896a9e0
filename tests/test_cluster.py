"""The Snakefile on made-up cards.

Snakemake is no pin of the book: `make test-deep` installs it, `make cluster` alone too.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from analysis.evidence import Evidence
from analysis.record.files import ROOT
from tests.rows import read_records

pytestmark = pytest.mark.deep
WORKFLOW = ROOT / "workflow"
ALONE = "--studies log"
MADE_UP = {
    "folder": "the cluster",  # a space in a name is no end of it
    "cards": [{"gpu": "made-up-8-9", "capability": "8.9"}, {"gpu": "made-up-7-5", "capability": "7.5"}],
    "measure": f"{{python}} -m tests.cards {{capability}} {{out}} {ALONE}",
    "merge": 'mkdir -p {data} && for each in {outs}; do cp -R "$each/." {data}/ || exit 1; done',
    "book": "{python} -m analysis --data {data} claims --gpu {gpu}",
    "compare": "{python} -m analysis --data {data} compare --out compared",
}


def snakemake(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it in a folder, as a user does in a checkout, and return what it said."""
    (folder / "made-up.yaml").write_text(yaml.safe_dump(MADE_UP))
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    files = ["--snakefile", str(WORKFLOW / "Snakefile"), "--workflow-profile", str(WORKFLOW / "profiles" / "default")]
    command = [sys.executable, "-m", "snakemake", *files, "--configfile", "made-up.yaml"]
    done = subprocess.run(command, cwd=folder, env=found, capture_output=True, text=True)
    assert "No module named snakemake" not in done.stderr, "snakemake is not installed: make cluster"
    assert done.returncode == 0, done.stderr
    return done


def test_made_up_cards_are_measured_merged_judged_and_compared(tmp_path: Path) -> None:
    snakemake(tmp_path)
    for capability in ("8.9", "7.5"):
        folder = tmp_path / "the cluster" / "measured" / f"made-up-{capability}".replace(".", "-")
        assert Evidence.load(folder).gpu["compute_capability"] == capability
        assert read_records(folder / "verdicts.csv", "verdicts")
    assert "made-up-7-5" in (tmp_path / "compared" / "speedups.csv").read_text()
    again = snakemake(tmp_path)
    assert "Nothing to be done" in again.stdout + again.stderr
