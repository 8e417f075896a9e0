"""What the shapes of the cluster kernels share."""

from typing import Any

GROUP = 32  # dims of a group: a cache line of 128 bytes
COPIERS = GROUP // 4  # threads that copy one row of a group
BARRIER = 2  # floats of an mbarrier
MAX_CLUSTER = 16
MAX_THREADS, SM_THREADS = 1024, 2048  # of a block, and of all blocks on an SM


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


def require_field(shape: Any, name: str, holds: bool, allowed: str) -> None:
    """Raise ValueError, with the field's value and what is allowed, unless `holds`."""
    if not holds:
        raise ValueError(f"{name} is {getattr(shape, name)}; it must be {allowed}")


def require_threads(shape: Any) -> None:
    """Raise ValueError for more threads than a block can have, or more blocks than fit an SM."""
    require_field(shape, "threads", 32 <= shape.threads <= MAX_THREADS, f"32 to {MAX_THREADS}")
    most = SM_THREADS // shape.threads
    require_field(shape, "blocks", 1 <= shape.blocks <= most, f"1 to {most}")


class RowShape:
    """What shapes of all cores derive of their fields."""

    splits = False  # whether clusters share the keys of a tile of queries

    @property
    def rows(self: Any) -> int:
        """Rows of the score tile that a block owns, at most."""
        return -(-self.queries // self.cluster)

    @property
    def rows_of_warp(self: Any) -> int:
        """Rows for which a warp computes the softmax, at most."""
        return -(-self.rows // (self.threads // 32))


def width_of(hdim: int, cluster: int, whole: int = GROUP) -> int:
    """Dims of a slice, a multiple of `whole`."""
    return -(-hdim // (cluster * whole)) * whole
