"""Which commit's code a run is of. FUSED_PE_COMMIT names that of an archive, which has no repository of its own."""

import os
import subprocess
from pathlib import Path

from ..record.files import ROOT


def _git(*arguments: str) -> str:
    """The output of git here, whatever repository a hook has set."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(("git", *arguments), cwd=ROOT, env=plain, capture_output=True, check=True)
    return os.fsdecode(done.stdout).strip()


def commit() -> str:
    """The project's commit, with -dirty if other than measured files changed; else FUSED_PE_COMMIT, or unknown.

    A repository is the project's only where its top folder is this checkout: an archive may be unpacked in another.
    """
    try:
        if Path(_git("rev-parse", "--show-toplevel")).samefile(ROOT):
            changed = _git("status", "--porcelain", "--untracked-files=normal", "--", ".", ":(exclude)data/measured")
            return _git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        pass
    return os.environ.get("FUSED_PE_COMMIT", "").strip() or "unknown"
