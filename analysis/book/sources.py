"""The source of a version as the book and the command line show it: its kernels, its launches, and what it changed.

python -m analysis show rope_v4
python -m analysis diff rope_v4                what it changes in its parent
python -m analysis diff rope_v7 rope_v5        what it changes in another
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import sys
import textwrap

from kernels import VERSIONS
from kernels.version import CudaFunction, Launch, Plan

from ..models.moves import example, known
from ..record.files import DataError

CONTEXT = 2  # lines around a change
COLOURS = {"+": "\033[32m", "-": "\033[31m", "@": "\033[36m"}
PLAIN = "\033[0m"


def _call(plan: Plan) -> str:
    lines = [f"# one call, at {plan.problem}"]
    for step in plan.steps:
        if isinstance(step, Launch):
            buffers = ", ".join(arg for arg in step.args if isinstance(arg, str))
            size = f"grid {step.grid} block {step.block} shared {step.shared_bytes} B"
            built = " fast-math" if step.kernel.fast_math else ""
            lines.append(f"launch {step.kernel.name}({buffers})  {size}{built}")
        else:
            lines.append("sync")
    return "\n".join(lines)


def kernel_text(name: str) -> str:
    """The kernels of a version, in the order of its launches, and the launches of one call; of a peer, its file.

    Raises: DataError for an unknown version.
    """
    version = known(name)
    if version.is_peer:
        return inspect.getsource(sys.modules[version.module])
    plan = example(version)
    functions = dict.fromkeys(launch.kernel.function for launch in plan.launches)
    sources = (
        (each.text if isinstance(each, CudaFunction) else textwrap.dedent(inspect.getsource(each))).rstrip()
        for each in functions
    )
    return "\n\n".join([*sources, _call(plan)]) + "\n"


def diff_text(name: str, other: str | None = None) -> str:
    """What a version changes in its parent, or in another version, as a unified diff: empty where they are the same.

    Raises: DataError for an unknown version, and for one without a parent where no other is named.
    """
    before = other or known(name).parent
    if before is None:
        raise DataError(f"{name!r} has no parent to compare with")
    old, new = (kernel_text(each).splitlines(keepends=True) for each in (before, name))
    return "".join(difflib.unified_diff(old, new, before, name, n=CONTEXT))


def coloured(diff: str) -> str:
    """A unified diff with the colours of a terminal."""
    lines = diff.splitlines()
    return "".join(f"{COLOURS[line[0]]}{line}{PLAIN}\n" if line[:1] in COLOURS else f"{line}\n" for line in lines)


# ---------------------------------------------------------------- the commands


def show(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m analysis show", description="Print the kernels of a version and the launches of one call."
    )
    parser.add_argument("version", help="its id, such as rope_v4; of a peer the file is shown")
    chosen = parser.parse_args(arguments)
    try:
        text = kernel_text(chosen.version)
    except DataError as error:
        print(f"show: {error}", file=sys.stderr)
        return 1
    print(text, end="")
    return 0


def diff(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m analysis diff", description="Print what a version changes in its parent, or in another version."
    )
    parser.add_argument("version", help="its id, such as rope_v4")
    parser.add_argument("other", nargs="?", help="what it is compared with in place of its parent")
    chosen = parser.parse_args(arguments)
    try:
        text = diff_text(chosen.version, chosen.other)
    except DataError as error:
        hint = "; name another version behind it" if chosen.version in VERSIONS and not chosen.other else ""
        print(f"diff: {error}{hint}", file=sys.stderr)
        return 1
    if not text:
        other = chosen.other or VERSIONS[chosen.version].parent
        print(f"diff: {chosen.version} has the kernels and the launches of {other}, line for line", file=sys.stderr)
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(coloured(text) if colours else text, end="")
    return 0
