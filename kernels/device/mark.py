"""Marks count events of an algorithm: rotations, sines, powers.

A mark compiles to nothing unless the process has called `enable`. Then it becomes a pseudo-instruction `mark.<event>`
that only the emulator knows. So the counts are exact whatever the compiler does to the arithmetic, and timed code
contains no marks.
"""

from typing import Any

from numba import types

from .asm import VOID, asm, device_op

EVENTS = ("rotation", "sin", "cos", "sincos", "pow")
_enabled = False


def enable() -> None:
    """Count marks in every kernel that this process compiles from now on. This cannot be undone."""
    global _enabled
    _enabled = True


def enabled() -> bool:
    return _enabled


def mark(event: str) -> Any:
    """A function without arguments that marks one `event` of a thread. Raises: ValueError for an unknown event."""
    if event not in EVENTS:
        raise ValueError(f"event is {event!r}; allowed: {', '.join(EVENTS)}")

    @device_op(types.void)
    def marked(b):
        if enabled():
            asm(b, f"mark.{event};", "", VOID)

    return marked
