"""Contents of a clone: nothing of one machine or registry in its files."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Written in pieces, so that this file does not hold them itself.
HOSTS = ("py" "pi.org", "python" "hosted", "index" "-url", "registry.npm" "js", "ana" "conda.org")
PLACE = re.compile(r"/(?<![\w.]/)(?:wo" r"rk|ro" r"ot|ho" r"me/\w+)/")  # fmt: skip
MADE = {".git", ".venv", "_build", "build", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def names_of_files() -> list[str]:
    """The files that a commit would hold: tracked, or new and not ignored; in an archive, all that are not made."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")[:-1]
    return [str(path) for path in (each.relative_to(ROOT) for each in ROOT.rglob("*")) if not MADE & set(path.parts)]


def test_no_registry_host_and_no_machine_path_is_written_down() -> None:
    names = names_of_files()
    texts = [ROOT / name for name in names if not re.search(r"mathjax/|\.(png|pdf|svg|gz)$", name)]
    found = [(path, path.read_text(errors="replace")) for path in texts if path.is_file()]
    assert [(str(path), host) for path, text in found for host in HOSTS if host in text] == []
    assert [(str(path), hit[0]) for path, text in found if (hit := PLACE.search(text))] == []
