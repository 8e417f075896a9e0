"""Kernels with one small mistake, of the kinds that the log itself made.

A barrier is left out, a bound is off by a step, a frequency is wrong.

What cannot change anything is no mistake: the double step of a loop that takes one step at most (a tile has no more
keys than a block has threads), and an early end of an unrolled loop whose remainder loop goes on.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, TypeGuard

from numba import cuda

from kernels import VERSIONS
from kernels.checking.check import problems

Edit = Callable[[], Callable[[], None]]  # makes a change and returns what takes it back
Site = tuple[str, ast.stmt, Edit]  # operator, the statement that it touches, what breaks it
Place = tuple[str, tuple[str, ...]]  # a function's module, and its qualified name without "<locals>"

STRIDES = {"THREADS", "WARPS", "WARP"}  # factors of a step that deal out turns to threads
TILES = {"tile", "BLOCK_K", "block_k"}  # numbers of keys that are below the number of threads
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
SINE_AND_COSINE = (("sinf", "cosf"), ("fast_sin", "fast_cos"), ("sin", "cos"))
SWAPPED = {one: other for pair in SINE_AND_COSINE for one, other in (pair, pair[::-1])}


# ---- Reading a function


def parse(text: str) -> Any:
    return ast.parse(text, mode="eval").body


def name_of(node: ast.AST | None) -> str:
    """The dotted name of a name, of an attribute or of what is called; else an empty string."""
    if isinstance(node, ast.Call):
        node = node.func
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def names_in(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def converted(node: ast.expr) -> ast.expr:
    """`x` of `cint(x)`, `uint32(x)` or `float32(x)`."""
    while isinstance(node, ast.Call) and name_of(node) in ("cint", "uint32", "float32"):
        node = node.args[0]
    return node


def is_number(node: ast.expr, value: float) -> bool:
    node = converted(node)
    return isinstance(node, ast.Constant) and node.value == value


def blocks(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    """Every list of statements of the function, outer ones first."""
    for node in ast.walk(function):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block:
                yield block


def statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    for block in blocks(function):
        yield from block


def expressions(statement: ast.stmt) -> Iterator[tuple[ast.AST, str, int | None, Any]]:
    """Every expression of a statement, but not of the statements in it: parent, field, index in the field, itself."""
    pending: list[ast.AST] = [statement]
    while pending:
        parent = pending.pop(0)
        for field, value in ast.iter_fields(parent):
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(child, ast.expr):
                    yield parent, field, index, child
                    pending.append(child)


def addition(loop: ast.While, variable: str) -> tuple[ast.AST, str, int | None, ast.expr] | None:
    """What a loop's body adds to `variable`: the node, the field and the place in it that hold it, and itself."""
    for statement in loop.body:
        if isinstance(statement, ast.AugAssign) and name_of(statement.target) == variable:
            return statement, "value", None, statement.value
        if isinstance(statement, ast.Assign) and name_of(statement.targets[0]) == variable:
            value = converted(statement.value)
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and name_of(value.left) == variable:
                return value, "right", None, value.right
    return None


def counts_from_zero(statement: ast.stmt) -> TypeGuard[Any]:
    """Whether it is `for ... in range(n)`."""
    return isinstance(statement, ast.For) and isinstance(statement.iter, ast.Call) and len(statement.iter.args) == 1


def is_cut(statement: ast.stmt, left: ast.expr, right: ast.expr) -> bool:
    """Whether a loop takes the least of a step and what is left: a round more would have nothing to do."""
    rest = f"{ast.unparse(right)} - {ast.unparse(left)}"
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call) and name_of(node) == "min")
    return isinstance(statement, ast.While) and any(rest in map(ast.unparse, call.args) for call in calls)


def loop_variable(loop: ast.While) -> str:
    return next((name for name in sorted(names_in(loop.test)) if addition(loop, name)), "")


def grain(step: ast.expr) -> str:
    """What one thread covers in a step: the step without the factors that deal out turns."""
    if isinstance(step, ast.BinOp) and isinstance(step.op, ast.Mult):
        factors = [grain(step.left), grain(step.right)]
        return " * ".join(factor for factor in factors if factor != "1") or "1"
    return "1" if name_of(step) in STRIDES else ast.unparse(step)


# ---- Operators: each gives the sites of a function, in an order that a copy of the function has too


def put(parent: ast.AST, field: str, index: int | None, new: Any) -> Edit:
    def assign(value: Any) -> Any:
        if index is None:
            old = getattr(parent, field)
            setattr(parent, field, value)
        else:
            old = getattr(parent, field)[index]
            getattr(parent, field)[index] = value
        return old

    def edit() -> Callable[[], None]:
        old = assign(new)
        return lambda: assign(old)

    return edit


def barriers(function: ast.FunctionDef) -> Iterator[Site]:
    """A barrier left out."""
    for statement in statements(function):
        if isinstance(statement, ast.Expr) and name_of(statement.value) in ("cuda.syncthreads", "cuda.syncwarp"):
            yield "barrier", statement, put(statement, "value", None, ast.Constant(...))


def bounds(function: ast.FunctionDef) -> Iterator[Site]:
    """A loop or a guard one step too far or too short; a key more or fewer in a tile."""
    grains: dict[ast.stmt, dict[str, str]] = {}  # of the loops that a statement is in
    for node in ast.walk(function):
        inside = grains.get(node, {}) if isinstance(node, ast.stmt) else {}
        if isinstance(node, ast.While) and loop_variable(node):
            found = addition(node, loop_variable(node))
            assert found
            inside = grains[node] = {**inside, loop_variable(node): grain(found[-1])}
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            grains.update(dict.fromkeys(block, inside) if isinstance(block, list) else {})
    for statement in statements(function):
        if counts_from_zero(statement):
            (count,) = statement.iter.args
            yield "bound", statement, put(statement.iter, "args", 0, parse(f"{ast.unparse(count)} - 1"))
        for _, _, _, node in expressions(statement):
            if isinstance(node, ast.Compare) and isinstance(statement, (ast.While, ast.If)):
                left, right = node.left, node.comparators[0]
                if not isinstance(node.ops[0], ORDERED) or is_number(right, 0) or "float32" in names_in(node):
                    continue
                steps = grains[statement]
                step = next((steps[name] for name in sorted(names_in(left)) if name in steps), "1")
                if not is_cut(statement, left, right):
                    yield "bound", statement, put(node, "comparators", 0, parse(f"{ast.unparse(right)} + {step}"))
                if isinstance(left, ast.Name) or isinstance(statement, ast.If):
                    yield "bound", statement, put(node, "left", None, parse(f"{ast.unparse(left)} + {step}"))
            if isinstance(node, ast.Call) and name_of(node) == "min":
                for index, sign in product((0, 1), "+-"):
                    changed = parse(f"{ast.unparse(node.args[index])} {sign} 1")
                    yield "bound", statement, put(node, "args", index, changed)


def exponents(function: ast.FunctionDef) -> Iterator[Site]:
    """The exponent of a frequency: a factor 2 lost, a pair not rounded down or halved again, another divisor."""
    parameters = {argument.arg for argument in function.args.args}
    for statement in statements(function):
        if not (isinstance(statement, ast.Assign) and name_of(statement.targets[0]) == "exponent"):
            continue
        for parent, field, index, node in expressions(statement):
            if not isinstance(node, ast.BinOp):
                continue
            if isinstance(node.op, ast.Mult) and is_number(node.left, 2):
                yield "exponent", statement, put(parent, field, index, node.right)
            if isinstance(node.op, ast.FloorDiv):
                yield "exponent", statement, put(parent, field, index, node.left)
            if isinstance(node.op, ast.Div):
                dividend, divisor = (ast.unparse(converted(side)) for side in (node.left, node.right))
                yield "exponent", statement, put(node, "right", None, parse(f"float32({divisor} - 2)"))
                if divisor == "rotary_dim" and "hdim" in parameters:
                    yield "exponent", statement, put(node, "right", None, parse("float32(hdim)"))
                if isinstance(converted(node.left), ast.Name):
                    yield "exponent", statement, put(node, "left", None, parse(f"float32({dividend} // 2)"))


def scales(function: ast.FunctionDef) -> Iterator[Site]:
    """The softmax scale left out."""
    for statement in statements(function):
        for parent, field, index, node in expressions(statement):
            if name_of(node) == "softmax_scale" and isinstance(getattr(parent, "op", None), ast.Mult):
                yield "scale", statement, put(parent, field, index, parse("float32(1.0)"))


def sines(function: ast.FunctionDef) -> Iterator[Site]:
    """Sine and cosine exchanged: two arguments of a rotation, two results of a function, one function, one table."""
    for statement in statements(function):
        for parent, field, index, node in expressions(statement):
            if isinstance(node, ast.Tuple) and name_of(getattr(parent, "value", None)) == "fast_sincos":
                yield "sine", statement, put(parent, field, index, ast.Tuple(node.elts[::-1], ast.Store()))
            elif isinstance(node, ast.Call) and name_of(node) == "rotate":
                yield "sine", statement, put(node, "args", None, [*node.args[:2], node.args[3], node.args[2]])
            elif isinstance(node, ast.Call) and name_of(node) in SWAPPED:
                yield "sine", statement, put(node, "func", None, parse(SWAPPED[name_of(node)]))
            elif (
                name_of(node) in ("ld4", "advance") and isinstance(node, ast.Call) and name_of(node.args[0]) in SWAPPED
            ):
                yield "sine", statement, put(node, "args", 0, parse(SWAPPED[name_of(node.args[0])]))
            elif isinstance(node, ast.Subscript) and name_of(node.value) in SWAPPED:
                yield "sine", statement, put(node, "value", None, parse(SWAPPED[name_of(node.value)]))


def masks(function: ast.FunctionDef) -> Iterator[Site]:
    """A condition that always holds, or never."""
    for statement in statements(function):
        for parent, field, index, node in expressions(statement):
            if isinstance(node, ast.IfExp):
                yield "mask", statement, put(parent, field, index, node.body)
                yield "mask", statement, put(parent, field, index, node.orelse)
        if isinstance(statement, ast.If):
            for holds in (True, False):
                yield "mask", statement, put(statement, "test", None, ast.Constant(holds))


def loops(function: ast.FunctionDef) -> Iterator[Site]:
    """A loop with steps of double the size, or that begins a step later."""
    for block in blocks(function):
        for position, statement in enumerate(block):
            if counts_from_zero(statement):
                yield "loop", statement, put(statement.iter, "args", None, [ast.Constant(1), *statement.iter.args])
            if not isinstance(statement, ast.While) or not loop_variable(statement):
                continue
            variable = loop_variable(statement)
            found = addition(statement, variable)
            assert found
            parent, field, index, step = found
            if not (name_of(step) == "THREADS" and names_in(statement.test) & TILES):
                holder = next(s for s in statement.body if s is parent or parent in ast.walk(s))
                yield "loop", holder, put(parent, field, index, parse(f"2 * ({ast.unparse(step)})"))
            for start in reversed(block[:position]):
                if isinstance(start, ast.Assign) and name_of(start.targets[0]) == variable:
                    later = parse(f"{ast.unparse(start.value)} + {ast.unparse(step)}")
                    yield "loop", start, put(start, "value", None, later)
                    break


OPERATORS = (barriers, bounds, exponents, scales, sines, masks, loops)


# ---- Mutants


@dataclass(frozen=True)
class Mutant:
    """One mistake in one function that a kernel of `version` consists of; `line` counts from the function's `def`."""

    version: str
    place: Place
    site: int  # which of the function's sites
    operator: str
    line: int
    original: str
    mutated: str

    @property
    def function(self) -> str:
        return self.place[1][-1]

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.version, self.function, self.operator, self.original


def place_of(function: Any) -> Place:
    return function.__module__, tuple(part for part in function.__qualname__.split(".") if part != "<locals>")


@cache
def definition(place: Place) -> ast.FunctionDef:
    node: Any = ast.parse(inspect.getsource(importlib.import_module(place[0])))
    for name in place[1]:
        node = next(n for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n.name == name)
    node.decorator_list = []
    return node


def sites(function: ast.FunctionDef) -> list[Site]:
    return [site for operator in OPERATORS for site in operator(function)]


def broken(place: Place, site: int) -> ast.FunctionDef:
    """The function with the mistake of that site."""
    function = copy.deepcopy(definition(place))
    _, _, edit = sites(function)[site]
    edit()
    return ast.fix_missing_locations(function)


def first_line(statement: ast.stmt) -> str:
    return ast.unparse(statement).splitlines()[0]


def shown(function: ast.FunctionDef, statement: ast.stmt) -> str:
    """A statement's first line, and of a barrier also what it stands before: barriers all look the same."""
    if not isinstance(statement, ast.Expr):
        return first_line(statement)
    block = next(block for block in blocks(function) if statement in block)
    following = block[block.index(statement) + 1 :]
    return f"{first_line(statement)}  # before {first_line(following[0]) if following else 'the end of the block'}"


def device_functions(function: Any) -> dict[str, Any]:
    """The project's device functions that `function` calls, by name."""
    return {
        name: called
        for name in sorted(names_in(definition(place_of(function))))
        if (called := function.__globals__.get(name)) is not None
        and getattr(getattr(called, "py_func", None), "__module__", "").startswith("kernels.")
    }


def places(function: Any) -> Iterator[Place]:
    """Where the code of a kernel stands: its own function's place, and those of its device functions."""
    yield place_of(function)
    for called in device_functions(function).values():
        yield from places(called.py_func)


@cache
def mutants(name: str) -> tuple[Mutant, ...]:
    """All mistakes of version `name`; the device functions that versions share only lose barriers."""
    version = VERSIONS[name]
    plans = [version(problem) for problem in problems(version)]
    where = {place: None for plan in plans for launch in plan.launches for place in places(launch.kernel.function)}
    found = []
    for place in where:
        function = definition(place)
        for index, (operator, statement, edit) in enumerate(sites(function)):
            if operator == "barrier" or not place[0].startswith("kernels.device."):
                line, original = statement.lineno - function.lineno + 1, shown(function, statement)
                take_back = edit()
                found.append(Mutant(name, place, index, operator, line, original, first_line(statement)))
                take_back()
    return tuple(found)


def rebuilt(function: Any, place: Place, changed: ast.FunctionDef) -> Any:
    """`function` with the definition at `place` changed; `function` itself if that is no part of it."""
    if place_of(function) == place:
        free = function.__code__.co_freevars
        factory = ast.parse(f"def factory({', '.join(free)}):\n    pass\n    return {changed.name}")
        factory.body[0].body[0] = changed  # type: ignore[attr-defined]
        names = dict(function.__globals__)
        exec(compile(factory, f"<a mutant of {place[0]}>", "exec"), names)
        return names["factory"](*(cell.cell_contents for cell in function.__closure__ or ()))
    replaced = {}
    for name, called in device_functions(function).items():
        new = rebuilt(called.py_func, place, changed)
        if new is not called.py_func:
            replaced[name] = cuda.jit(device=True)(new)
    if not replaced:
        return function
    names = {**function.__globals__, **replaced}
    return types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
