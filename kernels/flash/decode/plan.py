"""Decode: which kernel takes a call, how its keys are split, and its launches.

One rule over dtype, head dim, rows and the card chooses.
"""

from dataclasses import dataclass
from typing import Any

from ...constants import MUST_BE, require, require_raw_keys
from ...limits import capability
from ...version import Buffer, Kernel, Launch
from ..call import NAMES, Call, Request
from ..combine import launch_combine, shapes
from ..schedule import DecodeShape, dims_of
from .kernel import decode_kernel

MOST_DIMS, DIMS_STEP = 512, 8
MOST_QUERIES = 8  # a head; more are no decode
OVERLAP_SINCE = (9, 0)  # programmatic dependent launch
LEAST_KEYS = 64  # of a split
HALF_SINCE = (8, 0)  # conversions of two halves, and mma.m16n8k16

# By (dims, rows): keys a lane loads at a time, warps, blocks an SM, and whether the next batch is asked for ahead. More
# warps or registers in flight spill or leave an SM's memory pipeline short: measured on an H100.
FLOAT32 = {
    (64, 1): (8, 8, 2, True),
    (64, 2): (8, 8, 2, True),
    (64, 4): (4, 8, 2, True),
    (64, 8): (2, 8, 2, True),
    (128, 1): (8, 8, 2, True),
    (128, 2): (8, 8, 2, True),
    (128, 4): (8, 8, 2, False),
    (128, 8): (4, 12, 1, False),
    (256, 1): (4, 8, 2, True),
    (256, 2): (4, 8, 1, True),
    (256, 4): (4, 8, 1, True),
    (512, 1): (4, 8, 1, True),
    (512, 2): (2, 8, 1, True),
}
HALF = {
    (64, 1): (8, 8, 2, True),
    (64, 2): (4, 8, 2, True),
    (128, 1): (8, 8, 2, True),
    (128, 2): (4, 8, 2, True),
    (256, 1): (4, 8, 2, True),
    (256, 2): (4, 8, 1, True),
    (256, 4): (4, 8, 1, False),
    (512, 1): (4, 8, 1, True),
    (512, 2): (4, 8, 1, True),
}
TENSOR_CORES = {  # from 4 rows on, up to 128 dims: two halves of 64 dims leave registers for the next batch
    (64, 4): (4, 4, 4, True),
    (64, 8): (4, 4, 4, True),
    (64, 16): (4, 4, 3, True),
    (128, 4): (8, 4, 3, True),
    (128, 8): (8, 4, 3, True),
    (128, 16): (8, 4, 2, True),
}


@dataclass(frozen=True)
class Decode(Call):
    name = "decode"
    shape: DecodeShape

    @property
    def kernel(self) -> Kernel:
        return decode_kernel(self.shape)

    def splits(self, seq_k: int) -> tuple[int, int]:
        return splits_of(self.shape, self.of.shared_heads * self.tiles, seq_k, self.of.sms)

    def alike(self, seq_k: int) -> int:
        return self.splits(seq_k)[0]

    def buffers(self, seq_k: int) -> dict[str, Buffer]:
        p, splits = self.of.problem, self.splits(seq_k)[0]
        parts = shapes(p.batch * p.heads * p.seq_q, p.hdim, splits) if splits > 1 else {}
        return {name: Buffer(shape) for name, shape in parts.items()}

    def launches(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        """The launch that decodes and, where keys are split, the one that combines."""
        decode, combine = self._both(args, seq_k)
        return (decode, combine) if self.splits(seq_k)[0] > 1 else (decode,)

    def all_launches(self, seq_k: int) -> tuple[Launch, ...]:
        return self._both(NAMES, seq_k)

    def _both(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, Launch]:
        p, shape, splits = self.of.problem, self.shape, self.splits(seq_k)[0]
        grid = (splits * shape.cluster, p.kv_heads * self.tiles, p.batch)
        decode = Launch(self.kernel, grid, (shape.threads,), args, shape.layout, cluster=shape.cluster)
        return decode, launch_combine(shape.dtype, p.q_shape, splits, args[13:16], shape.overlap)


def require_decode(request: Request) -> None:
    """Raises: Unsupported for what no decode kernel takes."""
    dtype = request.problem.dtype
    require_queries(request, MOST_DIMS, 4 if dtype == "float32" else 8)
    if dtype != "float32":
        require_half(request.target)


def require_queries(request: Request, most_dims: int, vector: int) -> None:
    """Raises: Unsupported for more queries than decode takes, and as `Request.require`."""
    seq_q = request.problem.seq_q
    request.require(" in decode", DIMS_STEP, most_dims, vector)
    require(seq_q <= MOST_QUERIES, "seq_q", seq_q, f"at most {MOST_QUERIES} in decode", MUST_BE)


def require_half(target: str) -> None:
    template = "half precision needs compute capability {allowed}, this GPU has {needed}"
    require(capability(target) >= HALF_SINCE, "capability", target, "8.0", template)


def shape_of(dtype: str, hdim: int, rows: int, embedding: str, half_split: bool, target: str) -> DecodeShape:
    """The kernel for `rows` query rows of a KV head, which it takes in tiles of its own `rows`.

    A second launch combines the splits, and starts early where it can: with the last block of a head in its place,
    decode took 0.4 to 1 us more on an H100.
    """
    dims = dims_of(hdim)
    wanted = 1 << (rows - 1).bit_length()
    if "tables" in embedding:
        wanted = min(wanted, 8)  # 16 rows would spill
    by_size = FLOAT32 if dtype == "float32" else {**HALF, **TENSOR_CORES}
    taken = max(r for d, r in by_size if d == dims and r <= wanted)
    batch_rows, warps, blocks, ahead = by_size[dims, taken]
    mma = dtype != "float32" and (dims, taken) in TENSOR_CORES
    if embedding not in ("none", "alibi", "rates"):  # what each key reads or computes for itself takes registers
        blocks, ahead = (2, False) if mma else (1, ahead)
    overlap = capability(target) >= OVERLAP_SINCE
    if not overlap:
        blocks = 2 if mma else 1  # ptxas takes up to 255 registers for these targets, or spills
    return DecodeShape(
        dtype, hdim, taken, batch_rows, warps, blocks, ahead, "mma" if mma else "fma", embedding, half_split,
        overlap,
    )  # fmt: skip


def splits_of(shape: DecodeShape, heads: int, seq_k: int, sms: int) -> tuple[int, int]:
    """(splits, keys of each) for `heads` KV heads times row tiles in the whole batch.

    As many as stay within one wave, in decode a power of two: a second wave costs more than an idle SM. No split is
    smaller than what all warps take at a time, nor than what one launch takes faster than two.
    """
    room = max(sms * shape.blocks // heads, 1)
    splits = 1 << (room.bit_length() - 1) if shape.even_splits else room
    keys = max(-(-seq_k // splits), shape.block_keys, LEAST_KEYS)
    keys = -(-keys // shape.batch) * shape.batch
    return -(-seq_k // keys), keys


def decode_call(request: Request) -> Decode:
    """Raises: Unsupported for what no decode kernel takes."""
    require_decode(request)
    require_raw_keys(request.problem)
    return Decode(shape_of(request.problem.dtype, request.problem.hdim, request.rows, *request.how), request)
