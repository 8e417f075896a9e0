"""The limits of each compute capability, by target, for planning, compiling and running launches."""

import re
from dataclasses import dataclass
from typing import NamedTuple

TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
EMULATED_TARGET = "sm_90"
CLUSTERS_SINCE = (9, 0)


@dataclass(frozen=True)
class Limits:
    """Resources of one SM of a compute capability (CUDA C++ Programming Guide, technical specifications).

    A block may use the shared memory of the SM minus the reserved part. `cluster` is the largest cluster size in
    blocks, 1 without clusters. Sizes above 8 are not portable and listed only where a GPU has been seen to take them.
    """

    warps: int
    blocks: int
    shared_bytes: int
    reserved_shared_bytes: int = 1024
    registers: int = 65_536
    cluster: int = 1

    @property
    def block_shared_bytes(self) -> int:
        return self.shared_bytes - self.reserved_shared_bytes


LIMITS = {
    (7, 5): Limits(warps=32, blocks=16, shared_bytes=65_536, reserved_shared_bytes=0),
    (8, 0): Limits(warps=64, blocks=32, shared_bytes=167_936),
    (8, 6): Limits(warps=48, blocks=16, shared_bytes=102_400),
    (8, 7): Limits(warps=48, blocks=16, shared_bytes=167_936),
    (8, 9): Limits(warps=48, blocks=24, shared_bytes=102_400),
    (9, 0): Limits(warps=64, blocks=32, shared_bytes=233_472, cluster=16),
    (10, 0): Limits(warps=64, blocks=32, shared_bytes=233_472, cluster=16),
    (10, 3): Limits(warps=64, blocks=32, shared_bytes=233_472, cluster=16),
    (11, 0): Limits(warps=48, blocks=24, shared_bytes=233_472, cluster=8),
    (12, 0): Limits(warps=48, blocks=24, shared_bytes=102_400, cluster=8),
    (12, 1): Limits(warps=48, blocks=24, shared_bytes=102_400, cluster=8),
}


class Share(NamedTuple):
    """The part of a card that a launch may take, by default all of an H100; in a green context it is a slice.

    `cluster` is the largest cluster, of blocks that take an SM each, that the part holds.
    """

    sms: int = 132
    cluster: int = 16


def capability(target: str) -> tuple[int, int]:
    """`"sm_90"` to `(9, 0)`. Raises: ValueError for anything other than sm_NN or sm_NNa."""
    match = re.fullmatch(r"sm_(\d+)(\d)a?", target)
    if not match:
        raise ValueError(f"target is {target!r}; allowed: {', '.join(TARGETS)} and the like")
    return int(match[1]), int(match[2])


def limits_of(target: str) -> Limits:
    """The limits of a target. An unlisted target gets those of the next lower listed one, or of the lowest.

    Raises: ValueError for a malformed target.
    """
    cc = capability(target)
    return LIMITS[max((known for known in LIMITS if known <= cc), default=min(LIMITS))]
