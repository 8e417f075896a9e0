"""Which commit's code a run is of.

FUSED_PE_COMMIT: the commit of an archive, which has no repository of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..record.files import ROOT

UNKNOWN = "unknown"
_said: set[str] = set()


def _git(*arguments: str) -> str:
    """What git answers here, whatever repository a hook has set. Raises: OSError, CalledProcessError."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(("git", *arguments), cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit() -> str:
    """The project's commit, with -dirty if other than measured files changed; else FUSED_PE_COMMIT, or unknown.

    A repository is the project's only where its top folder is this checkout: an archive may be unpacked in another.
    """
    try:
        if Path(_git("rev-parse", "--show-toplevel")).samefile(ROOT):
            changed = _git("status", "--porcelain", "--", ".", ":(exclude)data/measured")
            return _git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        pass
    named = os.environ.get("FUSED_PE_COMMIT", "").strip()
    if not named and UNKNOWN not in _said:
        _said.add(UNKNOWN)
        print(f"the commit is unknown: {ROOT} is no git repository, and FUSED_PE_COMMIT names none", file=sys.stderr)
    return named or UNKNOWN
