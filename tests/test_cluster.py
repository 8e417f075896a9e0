"""The Snakefile: a dry run of what is committed, a run on made-up cards, and the Slurm profile on a stand-in for Slurm.

Snakemake is no pin of the book: `make test-deep` installs it, `make cluster` alone too.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from analysis.records.files import ROOT, read_records
from analysis.records.measured import Measured

pytestmark = pytest.mark.deep
WORKFLOW = ROOT / "workflow"
ALONE = "--studies log"
MADE_UP = {
    "cards": [{"gpu": "made-up-8-9", "capability": "8.9"}, {"gpu": "made-up-7-5", "capability": "7.5"}],
    "measure": f"{{python}} -m tests.cards {{capability}} {{out}} {ALONE}",
    "merge": "{python} -m analysis --data {data} merge {outs}",
    "book": "{python} -m analysis --data {data} claims --gpu {gpu}",
    "compare": "{python} -m analysis --data {data} compare --out compared",
}
SLURM = {  # what the executor calls: a job runs at once, in place of the cluster
    "sbatch": """for last; do :; done
echo "$@" >> "$SLURM_LOG"
env SLURM_JOB_ID=$$ sh -c "${last#--wrap=}" > "$SLURM_LOG.$$" 2>&1; code=$?
[ $code = 0 ] && state=COMPLETED || state=FAILED
echo "$$|$state" >> "$SLURM_LOG.states"; echo $$""",
    "srun": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
    "sacct": 'cat "$SLURM_LOG.states"',
    "sacctmgr": "echo account",
    "sinfo": "echo gpu",
    "scancel": ":",
}


def snakemake(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it in a folder, as a user does in a checkout, and return what it said."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(WORKFLOW / "Snakefile"), *options]
    done = subprocess.run(command, cwd=folder, env={**found, **environment}, capture_output=True, text=True)
    assert "No module named snakemake" not in done.stderr, "snakemake is not installed: make cluster"
    return done


def profile(name: str) -> tuple[str, str]:
    return "--workflow-profile", str(WORKFLOW / "profiles" / name)


def configured(folder: Path, **changed: object) -> tuple[str, str]:
    path = folder / "made-up.yaml"
    path.write_text(yaml.safe_dump({**MADE_UP, **changed}))
    return "--configfile", str(path)


def test_a_dry_run_lists_a_job_for_each_card_then_merge_books_and_compare(tmp_path: Path) -> None:
    done = snakemake(tmp_path, *profile("default"), "--dry-run", "--printshellcmds")
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    counted = dict(re.findall(r"^([\w-]+) +(\d+)$", said, re.MULTILINE))
    assert counted == {"all": "1", "book": "1", "compare": "1", "measure_my-card": "1", "merge": "1", "total": "5"}
    measured = f"{sys.executable} -m analysis --data cluster/jobs/my-card gpu --gpu my-card --without claims,build"
    assert measured in said and "merge cluster/jobs/my-card data/measured" in said


def test_made_up_cards_are_measured_merged_judged_and_compared(tmp_path: Path) -> None:
    options = (*profile("default"), *configured(tmp_path))
    done = snakemake(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    for capability in ("8.9", "7.5"):
        folder = tmp_path / "cluster" / "measured" / f"made-up-{capability}".replace(".", "-")
        assert Measured.read(folder).gpu["compute_capability"] == capability
        assert read_records(folder / "verdicts.csv", "verdicts")
    assert "made-up-7-5" in (tmp_path / "compared" / "speedups.csv").read_text()
    again = snakemake(tmp_path, *options)
    assert "Nothing to be done" in again.stdout + again.stderr


def test_a_job_that_fails_keeps_its_rows_and_ends_neither_the_others_nor_quietly(tmp_path: Path) -> None:
    measure = "mkdir -p {out} && echo row >> {out}/rows && test {gpu} != made-up-7-5 -o $(wc -l < {out}/rows) = 2"
    made_up = configured(tmp_path, measure=measure, merge="true", book="true", compare="true")
    options = (*profile("default"), "--keep-going", *made_up)
    failed = snakemake(tmp_path, *options)
    assert failed.returncode == 1 and "measure_made-up-7-5" in failed.stderr
    jobs = tmp_path / "cluster" / "jobs"
    assert (jobs / "made-up-7-5" / "rows").read_text() == "row\n" and (tmp_path / "cluster/made-up-8-9.done").exists()
    assert not (tmp_path / "cluster" / "made-up-7-5.done").exists()
    assert snakemake(tmp_path, *options).returncode == 0  # the next try has the rows of the first
    assert (jobs / "made-up-8-9" / "rows").read_text() == "row\n"


def test_on_slurm_a_card_is_a_job_with_one_gpu(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in SLURM.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    own = {"gres": "gpu:a100:1", "runtime": 30, "slurm_extra": "--exclusive"}
    cards = [{"gpu": "a100", "resources": own}, {"gpu": "h100", "device": 3}]
    said = dict.fromkeys(("merge", "book", "compare"), "true")
    options = configured(tmp_path, cards=cards, measure="echo {gpu} on $CUDA_VISIBLE_DEVICES", **said)
    environment = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "SLURM_LOG": str(tmp_path / "slurm")}
    quick = ("--seconds-between-status-checks", "1", "--slurm-init-seconds-before-status-checks", "1")
    done = snakemake(tmp_path, *profile("slurm"), *options, *quick, CUDA_VISIBLE_DEVICES="0", **environment)
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "slurm").read_text().splitlines()
    asked = {found[1]: line for line in calls if (found := re.search(r"--comment rule_(\S+)", line))}
    assert set(asked) == {"measure_a100", "measure_h100", "book_wildcards_a100", "book_wildcards_h100"}
    first, second = asked["measure_a100"], asked["measure_h100"]
    assert "--gres=gpu:a100:1" in first and "-t 30" in first and "--mem 65536" in first and "--exclusive" in first
    assert "--gres=gpu:1" in second and "-t 240" in second and "--cpus-per-task=8" in second
    assert "gres" not in asked["book_wildcards_a100"]
    assert (tmp_path / "cluster" / "a100.log").read_text() == "a100 on 0\n"
    assert (tmp_path / "cluster" / "h100.log").read_text() == "h100 on 3\n"
