"""What code a version and a kernel consist of.

`source_hash` decides whether a measurement still belongs to today's code; `kernel_identity` is the key
of the compile cache. Both cover a definition's syntax tree without comments and docstrings and every
definition of this package that it reaches by name, so rewording keeps evidence valid and a changed
kernel or constant does not.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import types
from collections.abc import Iterator
from typing import Any

from ..device import mark
from ..version import Kernel, Version

PACKAGE = __name__.split(".")[0]
CONTRACT = f"{PACKAGE}.version"
Definition = tuple[str, str]  # (module, name)


@functools.cache
def _definitions(module: str) -> tuple[dict[str, ast.AST], dict[str, Definition]]:
    """The module's own top-level definitions by name, and where each imported name comes from."""
    source = importlib.import_module(module)
    above = 1 if hasattr(source, "__path__") else 0  # a package's own name is where its relative imports begin
    tree = ast.parse(inspect.getsource(source))
    own: dict[str, ast.AST] = {}
    imported: dict[str, Definition] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own[node.name] = node
        elif isinstance(node, ast.Assign):
            own.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: above - node.level or None]) + "." if node.level else ""
            origin = (base + (node.module or "")).rstrip(".")
            imported.update({alias.asname or alias.name: (origin, alias.name) for alias in node.names})
    return own, imported


class _WithoutProse(ast.NodeTransformer):
    """Drops docstrings and the `@register(...)` decorator: words about the code, not the code."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list = [
            d for d in node.decorator_list if not (isinstance(d, ast.Call) and getattr(d.func, "id", "") == "register")
        ]
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            node.body = node.body[1:] or [ast.Pass()]
        return node


def _canonical(node: object) -> str:
    """The syntax tree as text, the same from every Python: `ast.dump` as 3.12 writes it."""
    if isinstance(node, list):
        return f"[{', '.join(map(_canonical, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    names = list(node._fields)
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and "type_params" not in names:
        names.append("type_params")
    parts = []
    for name in names:
        value = getattr(node, name, [] if name == "type_params" else None)
        if value is not None or getattr(type(node), name, ...) is not None:
            parts.append(f"{name}={_canonical(value)}")
    return f"{type(node).__name__}({', '.join(parts)})"


def _walk_code(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below and including `node`, without the arguments of `@register(...)`: what it names is no code."""
    yield node
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "register":
        yield node.func
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk_code(child)


def _reach(start: Definition) -> Iterator[tuple[Definition, ast.AST | None]]:
    """Every definition that `start` reaches by name, itself first; None for what lies outside the package."""
    pending, seen = [start], {start}
    while pending:
        module, name = pending.pop(0)
        if not module.startswith(PACKAGE + ".") or module == CONTRACT:
            yield (module, name), None
            continue
        own, imported = _definitions(module)
        node = own.get(name)
        if node is None:
            yield (module, name), None
            continue
        yield (module, name), node
        for child in _walk_code(node):
            if isinstance(child, ast.Name):
                target = (module, child.id) if child.id in own else imported.get(child.id)
                if target and target not in seen:
                    seen.add(target)
                    pending.append(target)


@functools.cache
def _code(module: str, name: str) -> str:
    """A definition's syntax tree without prose, as text."""
    return _canonical(_WithoutProse().visit(ast.parse(ast.unparse(_definitions(module)[0][name]))))


@functools.cache
def _digest(module: str, name: str) -> str:
    digest = hashlib.sha256()
    for (where, what), node in sorted(_reach((module, name)), key=lambda item: item[0]):
        text = "" if node is None else _code(where, what)
        digest.update(f"{where}.{what}\n{text}\n".encode())
    return digest.hexdigest()


def _function_identity(function: Any) -> str:
    """A digest of the function's code, and what it closes over."""
    root = function.__code__.co_qualname.split(".")[0]
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    closure = [f"{name}={_value_identity(cell.cell_contents)}" for name, cell in zip(names, cells, strict=True)]
    return " ".join([_digest(function.__module__, root), *closure])


def _value_identity(value: Any) -> str:
    value = getattr(value, "py_func", value)  # a device function
    if isinstance(value, functools.partial):
        return f"{_function_identity(value.func)} {value.args} {sorted(value.keywords.items())}"
    return _function_identity(value) if isinstance(value, types.FunctionType) else repr(value)


def source_hash(version: Version) -> str:
    """16 hexadecimal digits that change when the code of the version's kernels, launches or constants does."""
    identity = _function_identity(version.plan)
    return identity[:16] if " " not in identity else hashlib.sha256(identity.encode()).hexdigest()[:16]


def kernel_identity(kernel: Kernel) -> str:
    """A text that is equal for equal kernels: code, closure constants, signature and compile options."""
    function = kernel.function
    options = f"{kernel.signature} {kernel.launch_bounds} {kernel.fast_math} {mark.enabled()}"
    return f"{_function_identity(function)} {function.__qualname__} {options}"
