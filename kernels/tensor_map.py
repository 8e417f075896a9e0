"""A tensor map: a tensor in global memory, and the box of it that one copy brings to shared memory."""

import math
from dataclasses import dataclass

MAP_BYTES = 128
SWIZZLES = (0, 32, 64, 128)
MOST_BOX = 256  # elements of a dim


@dataclass(frozen=True)
class TensorMap:
    """A tensor of 2-byte elements in a buffer, fastest dim first; `strides` are those of the other dims, in bytes.

    Elements outside of the tensor are copied as zeros. A row of a box has the bytes of the swizzle, which permutes
    its 16-byte pieces by address bits.

    Raises: ValueError for a map that the hardware does not take.
    """

    buffer: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    itemsize: int = 2

    def __post_init__(self) -> None:
        rank = len(self.sizes)
        row = self.box[0] * self.itemsize
        if not 2 <= rank <= 4 or len(self.strides) != rank - 1 or len(self.box) != rank:
            raise ValueError(f"a tensor map has {rank} dims; it must have 2 to 4, strides of all but one, and a box")
        if any(stride % 16 for stride in self.strides) or row % 16 or max(self.box) > MOST_BOX:
            raise ValueError(f"strides {self.strides} and rows of {row} bytes: multiples of 16, boxes up to 256")
        if self.swizzle not in SWIZZLES or (self.swizzle and row != self.swizzle):
            raise ValueError(f"a box's row has {row} bytes, and the swizzle is {self.swizzle}")

    @property
    def box_bytes(self) -> int:
        return math.prod(self.box) * self.itemsize
