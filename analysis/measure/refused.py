"""What a machine lacks or forbids that a part of measuring needs: an answer, and no failure."""

from __future__ import annotations

import os
import shutil

REFUSED = 3  # exit code of a command that the machine refuses


class Refused(Exception):
    """The cause is the machine: a program that is not there, a permission that is not given."""


def exit_code(error: Exception) -> int:
    return REFUSED if isinstance(error, Refused) else 1


def toolkit(program: str) -> str:
    """The path of a program of the CUDA toolkit. Raises: Refused, naming where it was sought."""
    folders = [os.path.join(root, "bin") for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    path = shutil.which(program) or shutil.which(program, path=os.pathsep.join(folders))
    if not path:
        raise Refused(
            f"{program} is neither on the PATH nor in {' or '.join(folders)}; "
            "it comes with the CUDA toolkit: set CUDA_HOME to where that is"
        )
    return path
