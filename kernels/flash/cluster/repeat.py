"""Loops in device code that are always unrolled."""

from typing import Any

from numba import cuda


def repeat(body: Any, count: int) -> Any:
    """A device function that calls body(0, ...), body(1, ...) up to body(count - 1, ...).

    Whether the compiler unrolls a loop depends on its size, and an array that a loop indexes leaves the registers.
    """

    def calls(first: int, count: int) -> Any:
        if count == 1:

            @cuda.jit(device=True)
            def once(*args):
                body(first, *args)

            return once
        left, right = calls(first, count // 2), calls(first + count // 2, count - count // 2)

        @cuda.jit(device=True)
        def both(*args):
            left(*args)
            right(*args)

        return both

    return calls(0, count)
