"""The commit that a run names: -dirty says that the code which ran is not that commit's."""

import os
import subprocess
from pathlib import Path

import pytest

from analysis.measure import provenance


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a kernel and a measured file, in place of the project's."""
    files = ("kernels/kernel.py", "data/published.csv", "data/measured/card/timings.csv")
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("as committed")
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # as in a hook
        monkeypatch.delenv(name)
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for command in (
        ("init", "-q"),
        ("config", "status.showUntrackedFiles", "no"),
        ("add", "-A"),
        (*who, "commit", "-qm", "all"),
    ):
        subprocess.run(("git", *command), cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
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
def test_measured_rows_do_not_make_the_commit_dirty(tree: Path, file: str, dirty: bool) -> None:
    clean = provenance.commit()
    (tree / file).parent.mkdir(exist_ok=True)
    (tree / file).write_text("changed")
    assert provenance.commit() == clean + "-dirty" * dirty


def test_another_repository_is_not_asked(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that is unpacked inside a repository; a hook of another one, which sets GIT_DIR."""
    own = provenance.commit()
    archive = tree / "archive"
    archive.mkdir()
    monkeypatch.setattr(provenance, "ROOT", archive)
    assert provenance.commit() == "unknown"
    monkeypatch.setenv("GIT_DIR", str(tree / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(archive))
    monkeypatch.setenv("FUSED_PE_COMMIT", " ")
    assert provenance.commit() == "unknown"
    monkeypatch.setenv("FUSED_PE_COMMIT", "0123456789ab")
    assert provenance.commit() == "0123456789ab"
    monkeypatch.setattr(provenance, "ROOT", tree)
    monkeypatch.setenv("GIT_DIR", str(archive))
    assert provenance.commit() == own
