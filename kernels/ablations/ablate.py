"""Versions with one thing changed: the source of a version with a few lines replaced, and nothing else.

    ablate("rope_v2", "rope_v2_no_rotation", title="V2 without rotation", change="takes K as it is", edits=[(old, new)])

The replaced lines are the whole difference, so a measurement shows what they cost. An ablation that needs more than a
few lines is a file of its own in `kernels/ablations/`, registered with `ablation=True`.
"""

import ast
import importlib
import inspect
import linecache
import sys
import textwrap
import types
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..version import VERSIONS

INHERITED = ("whole_rows", "scalar_loads", "accurate_sines", "wrong_output")
Edit = tuple[str, str]  # the lines, at any indentation, and their replacement


def replaced(source: str, old: str, new: str) -> str:
    """`source` with the one block of lines `old` replaced by `new`, at the block's own indentation.

    Raises: ValueError unless `old` occurs exactly once.
    """
    lines, wanted = source.splitlines(), textwrap.dedent(old).strip("\n").splitlines()
    found = []
    for start, line in enumerate(lines[: len(lines) - len(wanted) + 1]):
        indent = line[: len(line) - len(line.lstrip())]
        if lines[start : start + len(wanted)] == [textwrap.indent(text, indent) for text in wanted]:
            found.append((start, indent))
    if len(found) != 1:
        raise ValueError(f"these lines are there {len(found)} times instead of once:\n{old}")
    start, indent = found[0]
    lines[start : start + len(wanted)] = textwrap.indent(textwrap.dedent(new).strip("\n"), indent).splitlines()
    return "\n".join(lines) + "\n"


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


def ablate(parent: str, name: str, *, title: str, change: str, edits: Sequence[Edit], **fields: Any) -> None:
    """Register `name`: the version `parent` with some lines of its file replaced.

    The file becomes a module beside that of the parent, so that its imports work and its source can be read like any
    other. It is checked like the parent, except for `fields` of the registration that differ.

    Raises: ValueError when an edit does not fit the file.
    """
    home = VERSIONS[parent].module
    source = inspect.getsource(importlib.import_module(home))
    for old, new in edits:
        try:
            source = replaced(source, old, new)
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
