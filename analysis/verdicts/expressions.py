"""The language of data/claims.yml, printed.yml and questions.yml: calls of known functions, names, arithmetic.

What is measured is an expression over the functions of `Facts` and of measures.py. A condition calls the functions that
its reader names, and may compare and use `and`, `or` and `not`. Nothing else is evaluated.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from ..records.files import DataError
from ..records.measured import middle_us
from .facts import NUDGE, Facts, common_run
from .measures import MEASURES
from .rule import GAIN, SIZE, is_ratio

FUNCTIONS = (*(name for name in vars(Facts) if not name.startswith("_")), *MEASURES)
# How many of a function's first arguments are versions, where that is not 1.
VERSION_ARGUMENTS = {
    "speed": 2,
    "closed": 3,
    **dict.fromkeys(("ceiling", "gpu", "said", "hdims", "max", "min", "forgotten_rope"), 0),
}
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}


@functools.cache
def _parse(text: str) -> ast.expr:
    """Raises: SyntaxError."""
    return ast.parse(text.strip(), mode="eval").body if text else ast.Constant(0)


def check_expression(
    text: str, names: Iterable[str], what: str, functions: Iterable[str] = FUNCTIONS, condition: bool = False
) -> None:
    """Raises: DataError for anything but calls of `functions`, `names`, constants and arithmetic.

    A `condition` may also compare and use `and`, `or` and `not`.
    """
    names, functions = tuple(names), tuple(functions)

    def check(node: ast.expr) -> None:
        match node:
            case ast.Constant(value=int() | float() | str()):
                pass
            case ast.Name(id=name) if name in names:
                pass
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                check(left)
                check(right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                check(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand) if condition:
                check(operand)
            case ast.BoolOp(values=values) if condition:
                for value in values:
                    check(value)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if condition and type(op) in COMPARISONS:
                check(left)
                check(right)
            case ast.Call(func=ast.Name(id=name)) if name in functions:
                for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                    check(argument)
            case ast.Call():
                raise DataError(f"{what}: {ast.unparse(node)!r}; functions are: {', '.join(functions)}")
            case ast.Name(id=name):
                raise DataError(f"{what}: {name!r} is not among the names: {', '.join(names) or 'none'}")
            case _:
                allowed = "a comparison of two" if condition else "arithmetic"
                raise DataError(f"{what}: {ast.unparse(node)!r} is neither a call, a name, a constant nor {allowed}")

    try:
        check(_parse(text))
    except SyntaxError as error:
        raise DataError(f"{what}: {text!r} is no expression: {error.msg}") from None


def evaluate(text: str, names: Mapping[str, Any], function: Callable[[str], Callable[..., Any]]) -> Any:
    """The value of a checked expression, whose functions are looked up by name."""
    return _evaluate(_parse(text), names, function)


def measure(text: str, facts: Facts, names: Mapping[str, Any]) -> Any:
    """The value of a checked expression over the data of one GPU. Raises: Undecided; DataError."""

    def function(name: str) -> Callable[..., Any]:
        return functools.partial(MEASURES[name], facts) if name in MEASURES else getattr(facts, name)

    def ask() -> Any:
        return evaluate(text, names, function)

    facts.timed, facts.studies, facts.calls, noted = set(), set(), [], dict(facts.used)
    try:
        found = ask()
        if isinstance(found, pd.Series) and found.isna().all():  # some of its studies were measured again since
            facts.used, facts.run = noted, common_run(facts)
            found = ask()
        if isinstance(found, pd.Series):
            found.attrs[SIZE] = middle_us(facts.calls)
            found.attrs[GAIN] = _gain(ask, found, facts)
    finally:
        facts.run = ""
    return found


def _gain(ask: Callable[[], pd.Series], found: pd.Series, facts: Facts) -> float:
    """What a value takes over of the variance between runs of a ratio, half of which is of either version's time."""
    values = found.dropna()
    positive, gain = is_ratio(found), 0.0
    for version in sorted(facts.timed):
        facts.nudged = version
        moved = ask().dropna()
        change = moved / values - 1 if positive else moved - values
        gain += float(change.mean() / (NUDGE - 1)) ** 2 / 2
    facts.nudged = ""
    return gain


def _evaluate(node: ast.expr, names: Mapping[str, Any], function: Callable[[str], Callable[..., Any]]) -> Any:
    def value(of: ast.expr) -> Any:
        return _evaluate(of, names, function)

    match node:
        case ast.Constant(value=constant):
            return constant
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](value(left), value(right))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not value(operand)
        case ast.UnaryOp(operand=operand):
            return -value(operand)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(value(each) for each in values)
        case ast.BoolOp(values=values):
            return any(value(each) for each in values)
        case ast.Compare(left=left, ops=[compare], comparators=[right]):
            return COMPARISONS[type(compare)](value(left), value(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            given = {str(keyword.arg): value(keyword.value) for keyword in keywords}
            return function(name)(*map(value, args), **given)
    raise AssertionError(ast.dump(node))


def names_in(text: str) -> set[str]:
    """The names that an expression uses, its functions left out."""
    nodes = list(ast.walk(_parse(text)))
    functions = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in functions}


def versions_in(text: str, names: Mapping[str, Any]) -> set[str]:
    """The versions that an expression names."""
    return set(_arguments(text, names, lambda function: VERSION_ARGUMENTS.get(function, 1)))


def rows_in(text: str, names: Mapping[str, Any]) -> set[str]:
    """The rows of published.csv that an expression names."""
    return set(_arguments(text, names, lambda function: int(function == "said")))


def _arguments(text: str, names: Mapping[str, Any], count: Callable[[str], int]) -> Iterator[str]:
    """Of every call in an expression, the first `count(function)` arguments."""
    for node in ast.walk(_parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for argument in node.args[: count(node.func.id)]:
                yield str(evaluate(ast.unparse(argument), names, _no_function))


def _no_function(name: str) -> Callable[..., Any]:
    raise DataError(f"{name}: a version and a row of published.csv are named, not computed")
