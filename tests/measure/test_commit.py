"""The commit that a run names: -dirty says that the code which ran is not that commit's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from analysis.measure import machine


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a kernel and a measured file, in place of the project's."""
    files = ("kernels/kernel.py", "data/published.csv", "data/measured/card/timings.csv")
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("as committed")
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for command in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "all")):
        subprocess.run(("git", *command), cwd=tmp_path, check=True)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "dirty"),
    [
        ("kernels/kernel.py", True),
        ("kernels/new.py", True),
        ("data/published.csv", True),
        ("data/measured/card/timings.csv", False),
        ("data/measured/other/timings.csv", False),
    ],
)
def test_what_a_run_measures_does_not_make_its_commit_dirty(tree: Path, file: str, dirty: bool) -> None:
    clean = machine.commit()
    (tree / file).parent.mkdir(exist_ok=True)
    (tree / file).write_text("changed")
    assert machine.commit() == clean + "-dirty" * dirty


def test_without_a_repository_the_commit_is_what_the_environment_says(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("FUSED_PE_COMMIT", "0123456789ab")
    assert machine.commit() == "0123456789ab"
