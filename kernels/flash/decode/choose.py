"""Which kernel takes a decode problem, and how its keys are split: one rule over dtype, head dim, rows and the card."""

from ...constants import MUST_BE, require
from ...limits import capability
from ..call import Request
from ..schedule import DecodeShape, dims_of

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


def require_decode(request: Request) -> None:
    """Raises: Unsupported for what no decode kernel takes."""
    seq_q, dtype = request.problem.seq_q, request.problem.dtype
    request.require(" in decode", DIMS_STEP, MOST_DIMS, 4 if dtype == "float32" else 8)
    require(seq_q <= MOST_QUERIES, "seq_q", seq_q, f"at most {MOST_QUERIES} in decode", MUST_BE)
    if dtype != "float32":
        require_half(request.target)


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
