"""Tools below all kernels: `compile` and `emulator` run a plan on any machine, `gpu` on a CUDA GPU."""

import functools
from typing import Any

_clear: list[Any] = []  # a function for each memory


def kept(memory: Any) -> Any:
    """Return a dict, a set, or a function with a cache, that lasts as long as the process, or until `forget`."""
    memory = functools.cache(memory) if callable(memory) else memory
    _clear.append(memory.cache_clear if callable(memory) else memory.clear)
    return memory


def forget() -> None:
    """Forget what calls have left: answers of the driver, plans, kernels, tables. No captured graph is valid then."""
    for clear in _clear:
        clear()
