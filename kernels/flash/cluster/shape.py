"""Base of the shapes of the cluster kernels, and the number of their blocks that a card holds."""

from typing import Any, ClassVar

from ...limits import Share

GROUP = 32  # dims of a group: a cache line of 128 bytes
COPIERS = GROUP // 4  # threads that copy one row of a group
BARRIER = 2  # floats of an mbarrier
MAX_CLUSTER = 16
MAX_THREADS, SM_THREADS = 1024, 2048  # of a block, and of all blocks on an SM
WHOLE = Share()  # an H100 or H200: of plans, which are the same on every machine
RESIDENT = {1: 132, 2: 132, 4: 120, 8: 120, 16: 112}  # blocks in clusters of a size that it holds, one to an SM


def resident(cluster: int, share: Share) -> int:
    """Blocks, in whole clusters of a size, that a share of a card holds, one to an SM; in proportion to an H200."""
    if cluster > share.cluster:
        return 0
    return RESIDENT[cluster] * share.sms // WHOLE.sms // cluster * cluster


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


def width_of(hdim: int, cluster: int, whole: int = GROUP) -> int:
    """Dims of a slice, a multiple of `whole`."""
    return -(-hdim // (cluster * whole)) * whole


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
    """Base of the shapes of all cores: properties derived from their fields."""

    splits = False  # whether clusters share the keys of a tile of queries
    lane_step: ClassVar = 2  # in a row of scores, a lane has the keys lane_step * lane + key_step * n
    key_step: ClassVar = 1

    @property
    def keys_per_lane(self) -> int:
        """Scores of a row that a lane has."""
        return 2

    @property
    def rows(self: Any) -> int:
        """Rows of the score tile that a block owns, at most."""
        return -(-self.queries // self.cluster)

    @property
    def rows_of_warp(self: Any) -> int:
        """Rows for which a warp computes the softmax, at most."""
        return -(-self.rows // (self.threads // 32))

    @property
    def groups(self: Any) -> int:
        """Groups of dims of a slice."""
        return int(self.width // GROUP)

    @property
    def most_dims(self: Any) -> int:
        """Dims that a cluster takes."""
        return int(self.cluster * self.width)
