"""What identifies the code of a version and of a kernel.

`source_hash` decides whether a measurement still belongs to today's code; `kernel_identity` is the key of the compile
cache. Both cover every definition of this package that the code reaches (see `definitions`). A reworded, moved or
refusing line keeps evidence valid; a changed kernel or constant does not.
"""

import functools
import hashlib
import importlib
import inspect
import linecache
import types
from typing import Any

from ..device import mark
from ..version import CudaFunction, Kernel, Version
from .definitions import Code

PACKAGE = __name__.split(".")[0]


@functools.cache
def module_text(module: str) -> tuple[str, bool] | None:
    """The text of a module, and whether it is a package; None where there is no such module."""
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            return None
        raise
    return "".join(linecache.getlines(str(loaded.__file__))), hasattr(loaded, "__path__")


CODE = Code(PACKAGE, module_text)


def _function_identity(function: Any, code: Code) -> str:
    """A digest of the code of a function and of the values it closes over."""
    root = function.__code__.co_qualname.split(".")[0]
    text = code.digest(function.__module__, root) if code.holds(function.__module__) else _foreign(function, code)
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    closure = [f"{name}={_value_identity(cell.cell_contents, code)}" for name, cell in zip(names, cells, strict=True)]
    return " ".join([text, *closure])


def _foreign(function: Any, code: Code) -> str:
    """For a function from outside the package: its source, and the package's functions that it calls by name."""
    called = [getattr(value, "py_func", getattr(value, "_defn", value)) for value in _globals(function)]
    ours = [value for value in called if isinstance(value, types.FunctionType) and code.holds(value.__module__)]
    return " ".join([inspect.getsource(function), *(_function_identity(value, code) for value in ours)])


def _globals(function: Any) -> list[Any]:
    return [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]


def _value_identity(value: Any, code: Code) -> str:
    value = getattr(value, "py_func", value)  # a device function
    if isinstance(value, functools.partial):
        return f"{_function_identity(value.func, code)} {value.args} {sorted(value.keywords.items())}"
    return _function_identity(value, code) if isinstance(value, types.FunctionType) else repr(value)


def source_hash(version: Version, code: Code = CODE) -> str:
    """16 hexadecimal digits that change when the code of the version's kernels, launches or constants does.

    Raises: UnresolvedName, with the module, where that code uses an undefined name.
    """
    return hashlib.sha256(_function_identity(version.plan, code).encode()).hexdigest()[:16]


def kernel_identity(kernel: Kernel, code: Code = CODE) -> str:
    """A text that is equal for equal kernels: code, closure constants, signature and compile options."""
    function = kernel.function
    if isinstance(function, CudaFunction):
        return f"{function} {kernel.fast_math} {mark.enabled()}"
    options = f"{kernel.signature} {kernel.launch_bounds} {kernel.fast_math} {mark.enabled()}"
    return f"{_function_identity(function, code)} {function.__qualname__} {options}"
