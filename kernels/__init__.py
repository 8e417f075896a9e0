"""Attention kernels with positional embeddings: those of the documents' log, in order, and what goes beyond them.

`VERSIONS` maps an id to its version, and `version` is one of them: both import `registry`, with all of the log.
`rope_attention`, `attention`, `alibi_attention` and `warm_up` are those of `op`, which is imported with the first.
"""

# ruff: noqa: E402
from typing import TYPE_CHECKING

from .runtime.environment import refuse_foreign, require_numba_cuda

require_numba_cuda()
from .version import Plan, Problem, Unsupported, Version, version

if TYPE_CHECKING:
    from .registry import VERSIONS

__all__ = ["VERSIONS", "Plan", "Problem", "Unsupported", "Version", "version"]
_OPS = ("alibi_attention", "attention", "rope_attention", "warm_up")


def __getattr__(name: str) -> object:
    if name in _OPS:
        from . import op

        globals().update({each: getattr(op, each) for each in _OPS})  # so that `__getattr__` is not called again
        return globals()[name]
    if name == "VERSIONS":
        try:
            from . import registry
        except OSError as error:
            raise ImportError(
                f"the versions of {__name__} are read from its source files, which this copy has not in a folder; "
                "rope_attention, attention, alibi_attention and warm_up need none"
            ) from error
        globals()[name] = registry.VERSIONS
        return globals()[name]
    refuse_foreign(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
