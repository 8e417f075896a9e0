"""The definitions that code reaches, as a text that is independent of the modules they are in.

A definition is what binds a name at the top level of a module of the package: a function, a class, an assignment of any
kind, or a whole `if`, `for`, `with` or `try`. Its text is its syntax tree. Each name of another definition is replaced
by the number of that definition, in the order in which they are reached, and its own name. So the text does not depend
on which module has the code, under which names modules import each other, and what packages re-export. Two definitions
of the same name have two numbers.

The text also omits comments, docstrings, the `@register(...)` decorator, and code that only refuses a problem: a call
of a function named `require...` whose value is not used, an `if` with nothing but such calls and `raise
Unsupported(...)`, and the arguments of that exception. A launch that is made is the same without them.
"""

import ast
import builtins
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

# Modules of the package that define what a version, a problem and a plan are. Code depends on their names, not on
# how they are written. If one of them is split, list its parts here.
CONTRACT = {"version"}
UNREGISTERED = {"contract.register"}
REFUSAL, REFUSES = "contract.Unsupported", "require"
IMPLICIT = {*dir(builtins), "__name__", "__file__"}

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
IMPORTS = (ast.Import, ast.ImportFrom)
REFUSED = (ast.Global, ast.Nonlocal, ast.Match, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


class UnresolvedName(LookupError):
    """Code uses a name that its module, the package and Python's builtins lack, or binds one in a way not followed."""


@dataclass(frozen=True)
class Definition:
    module: str
    name: str


@dataclass(frozen=True)
class PackageModule:
    """A module of the package as the value of a name; its attributes are definitions."""

    name: str


@dataclass(frozen=True)
class Outside:
    """A name from outside the package, such as "numba.cuda", or of its contract, such as "contract.Problem"."""

    origin: str


Target = Definition | PackageModule | Outside
Source = Callable[[str], tuple[str, bool] | None]  # name of a module -> its text and whether it is a package, or None
Imported = tuple[str, str | None]  # a module and a name in it
Scope = dict[str, Target | None]  # None: a local variable
Part = str | Definition


@dataclass
class _Bindings:
    """Definitions and imports that the names at the top level of a module are bound to."""

    statements: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, Imported] = field(default_factory=dict)


def _of_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes that bind names in the same scope as `nodes`: not those in nested functions, classes and
    comprehensions.
    """
    for node in nodes:
        yield node
        if not isinstance(node, (*COMPREHENSIONS, ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _of_scope(ast.iter_child_nodes(node))


def _bound(node: ast.AST) -> str | None:
    """The name that `node` itself binds, except by an import."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
        return node.name
    return node.id if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) else None


def _changed(node: ast.AST) -> str | None:
    """The name whose value `node` mutates: by an index, an attribute or, as a statement, a method."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        node = node.value.func
    elif not isinstance(node, (ast.Subscript, ast.Attribute)) or isinstance(node.ctx, ast.Load):
        return None
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if arg is not None:
            yield arg.arg


class Code:
    """The definitions of a package, whose modules `source` reads."""

    def __init__(self, package: str, source: Source) -> None:
        self.package, self._source = package, source
        self._modules: dict[str, _Bindings | None] = {}
        self._parts: dict[Definition, list[Part]] = {}
        self._digests: dict[Definition, str] = {}

    def holds(self, module: str) -> bool:
        return module == self.package or module.startswith(f"{self.package}.")

    def digest(self, module: str, name: str) -> str:
        """64 hexadecimal digits of a definition and all that it reaches. Raises: UnresolvedName."""
        start = Definition(module, name)
        if start not in self._digests:
            self._digests[start] = hashlib.sha256(self.text(module, name).encode()).hexdigest()
        return self._digests[start]

    def text(self, module: str, name: str) -> str:
        """The text that is digested: the definition itself, then all that it reaches. Raises: UnresolvedName."""
        start = self._resolve(module, name)
        if not isinstance(start, Definition):
            raise UnresolvedName(f"{module}.{name} is no definition of {self.package}")
        numbers, pending, text = {start: 0}, [start], []
        for definition in pending:
            for part in self._text_of(definition):
                if isinstance(part, Definition):
                    if part not in numbers:
                        numbers[part] = len(numbers)
                        pending.append(part)
                    part = f"@{numbers[part]}.{part.name}"
                text.append(part)
            text.append("\n")
        return "".join(text)

    def _text_of(self, definition: Definition) -> list[Part]:
        if definition not in self._parts:
            bindings = self.bindings(definition.module)
            assert bindings is not None
            self._parts[definition] = _Writer(self, definition).written(bindings.statements[definition.name])
        return self._parts[definition]

    def bindings(self, module: str) -> _Bindings | None:
        """The bindings of a module of the package; None where there is no such module."""
        if module not in self._modules:
            source = self._source(module)
            self._modules[module] = source and self._read(module, *source)
        return self._modules[module]

    def _read(self, module: str, text: str, is_package: bool) -> _Bindings:
        bindings, changes = _Bindings(), []
        for statement in ast.parse(text).body:
            for node in _of_scope([statement]):
                if isinstance(node, IMPORTS):
                    for name, origin in self.aliases(node, module, is_package):
                        if self.holds(origin[0]) or node is statement:
                            bindings.imports[name] = origin
                        else:
                            bindings.statements.setdefault(name, []).append(statement)
                elif bound := _bound(node):
                    bindings.statements.setdefault(bound, []).append(statement)
                elif changed := _changed(node):
                    changes.append((changed, statement))
        for name, statement in changes:
            if name in bindings.statements:
                bindings.statements[name].append(statement)
        for name, statements in bindings.statements.items():
            bindings.statements[name] = sorted(set(statements), key=lambda statement: statement.lineno)
            if name in bindings.imports and self.holds(bindings.imports[name][0]):
                raise UnresolvedName(f"{module} both imports and defines {name}")
        return bindings

    def aliases(
        self, node: ast.Import | ast.ImportFrom, module: str, is_package: bool
    ) -> Iterator[tuple[str, Imported]]:
        """The names that an import binds, and what they refer to."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                yield alias.asname or first, (alias.name if alias.asname else first, None)
            return
        outer = module.split(".")[: (is_package - node.level) or None] if node.level else []
        origin = ".".join([*outer, *filter(None, [node.module])])
        for alias in node.names:
            if alias.name == "*":
                raise UnresolvedName(f"{module} imports all names of {origin}: which they are is not known")
            yield alias.asname or alias.name, (origin, alias.name)

    def is_package(self, module: str) -> bool:
        source = self._source(module)
        return source is not None and source[1]

    def imported(self, origin: str, name: str | None) -> Target:
        """The target of an import. Raises: UnresolvedName where the package has no such module or name."""
        if not self.holds(origin):
            return Outside(f"{origin}.{name}" if name else origin)
        return self._resolve(origin, name) if name else PackageModule(origin)

    def _resolve(self, module: str, name: str) -> Target:
        """The target of `name` in a module, wherever it is defined. Raises: UnresolvedName."""
        target = self.lookup(module, name)
        if target is None:
            raise UnresolvedName(f"{module} has no {name}")
        return target

    def lookup(self, module: str, name: str) -> Target | None:
        """The target of `name` in a module; None where the module does not have that name."""
        bindings = self.bindings(module)
        if bindings is None:
            raise UnresolvedName(f"there is no module {module}, which {name} is taken from")
        if name in bindings.statements:
            inner = module.removeprefix(self.package).removeprefix(".")
            return Outside(f"contract.{name}") if inner in CONTRACT else Definition(module, name)
        if name in bindings.imports:
            return self.imported(*bindings.imports[name])
        inner = f"{module}.{name}"
        return PackageModule(inner) if self.bindings(inner) is not None else None


class _Writer:
    """Writes statements as parts: text, and a definition where one is named."""

    def __init__(self, code: Code, definition: Definition) -> None:
        self.code, self.definition, self.parts = code, definition, list[Part]()

    def written(self, statements: list[ast.stmt]) -> list[Part]:
        self._write(self._counting(statements, ()), ())
        runs = itertools.groupby(self.parts, key=lambda part: isinstance(part, str))
        return [part for is_text, run in runs for part in (["".join(run)] if is_text else run)]  # type: ignore[arg-type]

    def _target(self, node: ast.AST, scopes: tuple[Scope, ...]) -> Target | None:
        """The target of a name, or of an attribute of a module; None for local variables and all other nodes."""
        module = self.definition.module
        if isinstance(node, ast.Attribute):
            base = self._target(node.value, scopes)
            if isinstance(base, Outside) and not base.origin.startswith("contract."):
                return Outside(f"{base.origin}.{node.attr}")
            return self.code.imported(base.name, node.attr) if isinstance(base, PackageModule) else None
        if not isinstance(node, ast.Name):
            return None
        for scope in reversed(scopes):
            if node.id in scope:
                return scope[node.id]
        target = self.code.lookup(module, node.id)
        if target is None and node.id not in IMPLICIT:
            raise UnresolvedName(f"{module}: {node.id}, which {self.definition.name} uses, is not defined")
        return target

    def _unresolved(self, what: str) -> UnresolvedName:
        return UnresolvedName(f"{self.definition.module}: {self.definition.name} {what}")

    def _write(self, node: object, scopes: tuple[Scope, ...]) -> None:
        if isinstance(node, list):
            self.parts.append("[")
            for child in node:
                self._write(child, scopes)
                self.parts.append(", ")
            self.parts.append("]")
        elif not isinstance(node, ast.AST):
            self.parts.append(repr(node))
        elif isinstance(node, (ast.Name, ast.Attribute)) and (target := self._target(node, scopes)):
            if isinstance(target, PackageModule):
                raise self._unresolved(f"uses the module {target.name} as a value")
            self.parts += [target if isinstance(target, Definition) else target.origin, f" {type(node.ctx).__name__}"]
        elif isinstance(node, ast.Raise) and node.exc and self._refusal(node.exc, scopes):
            self.parts.append(f"Raise({REFUSAL})")
        elif isinstance(node, REFUSED):
            raise self._unresolved(f"has {type(node).__name__}, whose names are not followed")
        elif isinstance(node, (ast.FunctionDef, ast.Lambda)):
            body: list[Any] = node.body if isinstance(node.body, list) else [node.body]
            inner = (*self._seen_inside(scopes), self._scope(body, _parameters(node.args)))
            self._fields(node, scopes, body=inner)
        elif isinstance(node, ast.ClassDef):
            self._fields(node, scopes, body=(*scopes, _ClassScope(self._scope(node.body))))
        elif isinstance(node, COMPREHENSIONS):
            self._comprehension(node, scopes)
        else:
            self._fields(node, scopes)

    def _fields(self, node: ast.AST, scopes: tuple[Scope, ...], body: tuple[Scope, ...] | None = None) -> None:
        """Write a node as `ast.dump` of Python 3.12 does, on any Python. `body` are the scopes of its body."""
        self.parts.append(f"{type(node).__name__}(")
        names = list(node._fields)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and "type_params" not in names:
            names.append("type_params")
        for name in names:
            value = getattr(node, name, [] if name == "type_params" else None)
            if value is None and getattr(type(node), name, ...) is None:
                continue
            inner = body if name == "body" and body is not None else scopes
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                value = self._counting(value, inner) or ([ast.Pass()] if name == "body" else [])
            elif name == "decorator_list" and isinstance(value, list):
                value = [d for d in value if not (isinstance(d, ast.Call) and self._is(d.func, UNREGISTERED, scopes))]
            self.parts.append(f"{name}=")
            self._write(value, inner)
            self.parts.append(", ")
        self.parts.append(")")

    def _comprehension(self, node: ast.AST, scopes: tuple[Scope, ...]) -> None:
        """Write a comprehension: the first iterable is evaluated in the outer scope, the rest in the inner one."""
        assert isinstance(node, COMPREHENSIONS)
        if any(isinstance(child, ast.NamedExpr) for child in ast.walk(node)):
            raise self._unresolved("has := in a comprehension, whose names are not followed")
        targets = _of_scope(generator.target for generator in node.generators)
        local: Scope = {name: None for target in targets if (name := _bound(target))}
        inner = (*self._seen_inside(scopes), local)
        self.parts.append(f"{type(node).__name__}(")
        self._write(node.generators[0].iter, scopes)
        for number, generator in enumerate(node.generators):
            self._write([generator.target, *([generator.iter] if number else []), *generator.ifs], inner)
            self.parts.append(f"is_async={generator.is_async}")
        self._write([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], inner)
        self.parts.append(")")

    def _scope(self, body: Iterable[ast.AST], parameters: Iterable[str] = ()) -> Scope:
        """The names that a body binds; an import from the package keeps its target."""
        scope: Scope = dict.fromkeys(parameters)
        for node in _of_scope(body):
            if isinstance(node, IMPORTS):
                for name, origin in self._aliases(node):
                    scope[name] = self.code.imported(*origin) if self.code.holds(origin[0]) else None
            elif bound := _bound(node):
                scope[bound] = None
        return scope

    def _aliases(self, node: ast.Import | ast.ImportFrom) -> list[tuple[str, Imported]]:
        module = self.definition.module
        return list(self.code.aliases(node, module, self.code.is_package(module)))

    @staticmethod
    def _seen_inside(scopes: tuple[Scope, ...]) -> tuple[Scope, ...]:
        return tuple(scope for scope in scopes if not isinstance(scope, _ClassScope))

    def _is(self, node: ast.AST, origins: set[str], scopes: tuple[Scope, ...]) -> bool:
        target = self._target(node, scopes)
        return isinstance(target, Outside) and target.origin in origins

    def _refusal(self, exception: ast.expr, scopes: tuple[Scope, ...]) -> bool:
        return self._is(exception.func if isinstance(exception, ast.Call) else exception, {REFUSAL}, scopes)

    def _counting(self, statements: list[ast.stmt], scopes: tuple[Scope, ...]) -> list[ast.stmt]:
        """The statements that count: without docstrings, imports from the package and refusals."""
        return [node for node in statements if not self._is_prose(node) and not self._refuses(node, scopes)]

    def _is_prose(self, node: ast.stmt) -> bool:
        if isinstance(node, IMPORTS):
            return all(self.code.holds(origin) for _, (origin, _) in self._aliases(node))
        return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)

    def _refuses(self, node: ast.stmt, scopes: tuple[Scope, ...]) -> bool:
        if isinstance(node, ast.If):
            branches = [*node.body, *node.orelse]
            return all(
                self._refuses(each, scopes)
                or (isinstance(each, ast.Raise) and each.exc is not None and self._refusal(each.exc, scopes))
                for each in branches
            )
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            return False
        target = self._target(node.value.func, scopes)
        if isinstance(target, Outside):
            return target.origin.startswith(f"contract.{REFUSES}")
        return isinstance(target, Definition) and target.name.startswith(REFUSES)


class _ClassScope(dict[str, Target | None]):
    """The names of a class body, which functions inside it do not see."""
