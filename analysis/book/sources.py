"""The source of a version as the book shows it: its kernels, its launches, and what it changed."""

import difflib
import inspect
import sys
import textwrap
from typing import Any

from kernels import version
from kernels.version import CudaFunction, Launch, Plan

from ..models.moves import example
from ..record.files import DataError

CONTEXT = 2  # lines around a change


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
    """The kernels of a version that is no peer, in the order of its launches, and the launches of one call."""
    plan = example(version(name))
    functions = dict.fromkeys(launch.kernel.function for launch in plan.launches)
    return "\n\n".join([*(text.rstrip() for each in functions for text in _texts(each)), _call(plan)]) + "\n"


def _texts(function: Any) -> list[str]:
    """The source of a kernel; where `online_attention` makes its loop over keys, first of the loop and the score."""
    if isinstance(function, CudaFunction):
        return [function.text]
    parts = [function]
    if "attend_to_keys" in function.__code__.co_names:
        parts = [*(function.__globals__[name].py_func for name in ("attend_to_keys", "score")), function]
    texts = [textwrap.dedent(inspect.getsource(part)) for part in parts]
    if len(parts) > 1:
        lines = inspect.getsourcelines(sys.modules[function.__module__])[0]
        texts[2:2] = [line for line in lines if line.startswith("attend_to_keys = ")]
    return texts


def diff_text(name: str) -> str:
    """The change of a version from its parent as a unified diff: empty where they are the same."""
    before = version(name).parent or ""
    old, new = (kernel_text(each).splitlines(keepends=True) for each in (before, name))
    return "".join(difflib.unified_diff(old, new, before, name, n=CONTEXT))


def change_text(before: str, after: str) -> str:
    """Two excerpts as one, lines that go and that come marked."""
    old, new = (each.splitlines(keepends=True)[1:] for each in (before, after))  # without the names of their files
    return "".join([*difflib.unified_diff(old, new, n=len(old))][3:])


def excerpt(what: Any, first: str, last: str) -> str:
    """Lines of a function or a module, below the name of their file; a line is named by how it begins.

    `last` begins one line only; `first` is the nearest line before that one. Raises: DataError where either is missing.
    """
    lines = inspect.getsource(what).splitlines()
    ends = [i for i, line in enumerate(lines) if line.lstrip().startswith(last)]
    starts = [i for i, line in enumerate(lines[: ends[0]] if ends else ()) if line.lstrip().startswith(first)]
    origin = inspect.unwrap(what)
    file = f"{getattr(origin, '__module__', origin.__name__).replace('.', '/')}.py"
    if len(ends) != 1 or not starts:
        raise DataError(f"{file}: {len(ends)} lines begin with {last!r}, {len(starts)} before it with {first!r}")
    name = f", {origin.__name__}" if hasattr(origin, "__module__") else ""
    return f"# {file}{name}\n" + textwrap.dedent("\n".join(lines[starts[-1] : ends[0] + 1])) + "\n"
