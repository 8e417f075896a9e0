"""Versions with one thing changed: the source of a version with a few lines replaced, and nothing else.

    ablate("rope_v2", "rope_v2_no_rotation", title="V2 without rotation", change="takes K as it is", diff="- ...")

A diff has a blank line between hunks and two characters before each line: "- ", "+ ", or "  " in both. Its lines
are the whole difference, so a measurement shows what they cost. An ablation that needs more than a few lines is a file
of its own in `kernels/log/ablations/`, registered with `ablation=True`.
"""

import ast
import importlib
import inspect
import linecache
import re
import sys
import textwrap
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...version import VERSIONS, Launch, Plan, Problem, register

INHERITED = ("whole_rows", "scalar_loads", "accurate_sines", "wrong_output")


def patched(source: str, diff: str) -> str:
    """`source` with the hunks of `diff` applied, each at the indentation of the lines that it finds.

    Raises: ValueError unless the lines of a hunk occur exactly once.
    """
    for hunk in re.split(r"\n\s*\n", textwrap.dedent(diff).strip("\n")):
        lines, marked = source.splitlines(), hunk.splitlines()
        wanted, new = ([line[2:] for line in marked if line[0] in marks] for marks in ("- ", "+ "))
        found = []
        for start, line in enumerate(lines[: len(lines) - len(wanted) + 1]):
            indent = line[: len(line) - len(line.lstrip())]
            if lines[start : start + len(wanted)] == [text and indent + text for text in wanted]:
                found.append((start, indent))
        if len(found) != 1:
            raise ValueError(f"these lines are there {len(found)} times instead of once:\n{hunk}")
        start, indent = found[0]
        lines[start : start + len(wanted)] = [text and indent + text for text in new]
        source = "\n".join(lines) + "\n"
    return source


def _renamed(source: str, parent: str, name: str, title: str, change: str) -> str:
    """The source of a version with the docstring, the registration and the planner's name of its ablation."""
    tree, lines = ast.parse(source), source.splitlines()
    planners = [
        node for node in tree.body
        if isinstance(node, ast.FunctionDef) and any("register" in ast.unparse(d) for d in node.decorator_list)
    ]  # fmt: skip
    if [node.name for node in planners] != [parent]:
        raise ValueError(f"the file of {parent!r} registers {', '.join(node.name for node in planners)}")
    planner, docstring, version = planners[0], tree.body[0], VERSIONS[parent]
    arguments = {
        "family": version.family, "title": title, "parent": parent, "baseline": version.baseline,
        "source": version.source, "change": change, "iterations": version.iterations, "ablation": True,
    }  # fmt: skip
    registration = ["@register(", *(f"    {key}={value!r}," for key, value in arguments.items()), ")"]
    lines[planner.decorator_list[0].lineno - 1 : planner.lineno] = [
        *registration, lines[planner.lineno - 1].replace(parent, name, 1),
    ]  # fmt: skip
    lines[: docstring.end_lineno or 0] = [f'"""{title}.', "", f"Change from {parent}: {change}.", '"""']
    return "\n".join(lines) + "\n"


def ablate(parent: str, name: str, *, title: str, change: str, diff: str, **fields: Any) -> None:
    """Register `name`: the version `parent` with a diff of its file.

    The file becomes a module in the folder of the parent, so that its imports work and its source can be read like any
    other. It is checked like the parent, except for `fields` of the registration that differ.

    Raises: ValueError when the diff does not fit the file.
    """
    home = VERSIONS[parent].module
    source = inspect.getsource(importlib.import_module(home))
    try:
        source = patched(source, diff)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    source = _renamed(source, parent, name, title, change)
    package = home.rpartition(".")[0]
    module = types.ModuleType(f"{package}.{name}")
    module.__package__ = package
    module.__file__ = f"<{module.__name__}>"
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    sys.modules[module.__name__] = module
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    inherited = {field: getattr(VERSIONS[parent], field) for field in INHERITED}
    VERSIONS[name] = replace(VERSIONS[name], **inherited | fields)


def derive(name: str, base: str, edit: Callable[[Launch], Launch], **fields: Any) -> None:
    """Register `name`: the launches of the version `base`, each changed by `edit`.

    It is checked like the base, except for `fields` of the registration that differ.
    """
    original = VERSIONS[base]
    base_plan = original.plan

    def plan(problem: Problem) -> Plan:
        return base_plan(problem).with_launches(edit)

    plan.__name__ = plan.__qualname__ = name
    plan.__doc__ = base_plan.__doc__
    kept = {field: getattr(original, field) for field in ("family", "source", "iterations", *INHERITED)}
    register(**kept | fields)(plan)
