"""Identity of the code of a version and of a kernel.

`source_hash` decides whether a measurement still belongs to today's code; `kernel_identity` is the key of the compile
cache. Both cover every definition of this package that the code reaches (see `definitions`). A reworded, moved or
refusing line keeps evidence valid; a changed kernel or constant does not.
"""

import functools
import hashlib
import importlib.resources
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
    """The text of a module, empty where it has no source, and whether it is a package; None where there is none."""
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            return None
        raise
    loader: Any = loaded.__loader__
    text = "".join(linecache.getlines(str(loaded.__file__))) or loader.get_source(module)  # where it is in a zip
    return text or "", hasattr(loaded, "__path__")


CODE = Code(PACKAGE, module_text)


@functools.cache
def _package_identity() -> str:
    """A digest of all files of a package without sources, which tell one release from another."""
    digest, pending = hashlib.sha256(), [importlib.resources.files(PACKAGE)]
    for folder in pending:
        for each in sorted(folder.iterdir(), key=lambda each: each.name):
            if each.is_dir():
                pending.append(each)
            else:
                digest.update(each.name.encode() + each.read_bytes())
    return digest.hexdigest()


def _function_identity(function: Any) -> str:
    """A digest of the code of a function and of the values it closes over."""
    root = function.__code__.co_qualname.split(".")[0]
    if not CODE.holds(function.__module__):
        text = _foreign(function)
    elif module_text(function.__module__) == ("", False):
        text = f"{_package_identity()} {function.__module__}.{root}"
    else:
        text = CODE.digest(function.__module__, root)
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    closure = [f"{name}={_value_identity(cell.cell_contents)}" for name, cell in zip(names, cells, strict=True)]
    return " ".join([text, *closure])


def _foreign(function: Any) -> str:
    """For a function from outside the package: its source, and the package's functions that it calls by name."""
    called = [getattr(value, "py_func", getattr(value, "_defn", value)) for value in _globals(function)]
    ours = [value for value in called if isinstance(value, types.FunctionType) and CODE.holds(value.__module__)]
    return " ".join([inspect.getsource(function), *map(_function_identity, ours)])


def _globals(function: Any) -> list[Any]:
    return [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]


def _value_identity(value: Any) -> str:
    value = getattr(value, "py_func", value)  # a device function
    if isinstance(value, functools.partial):
        return f"{_function_identity(value.func)} {value.args} {sorted(value.keywords.items())}"
    return _function_identity(value) if isinstance(value, types.FunctionType) else repr(value)


def source_hash(version: Version) -> str:
    """16 hexadecimal digits that change when the code of the version's kernels, launches or constants does.

    Raises: UnresolvedName, with the module, where that code uses an undefined name.
    """
    return hashlib.sha256(_function_identity(version.plan).encode()).hexdigest()[:16]


def kernel_identity(kernel: Kernel) -> str:
    """A text that is equal for equal kernels: code, closure constants, signature and compile options."""
    function = kernel.function
    if isinstance(function, CudaFunction):
        return f"{function} {kernel.fast_math} {mark.enabled()}"
    options = f"{kernel.signature} {kernel.launch_bounds} {kernel.fast_math} {mark.enabled()}"
    return f"{_function_identity(function)} {function.__qualname__} {options}"
