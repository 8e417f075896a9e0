"""The launch behind an attention whose keys are split: the parts of each row to its output."""

import math
from collections.abc import Sequence

from numba import cuda, float32, uint32, uint64

from ...constants import FLOATS, UINT
from ...device.asm import exp2
from ...device.reduce import FULL_MASK
from ...device.rows import ROWS, rows_of
from ...device.vector import ld2, ld4, make_float4, st4
from ...version import Kernel, Launch, Problem
from ..tiles import wait_for_launch
from .launch import strides

LANES, SHARES = 32, 8  # threads of a block: dims by splits
NO_KEY = float32(-1e30)


def combine(part, totals, out, heads, seq_q, hdim, rows, splits):
    """One row and 128 dims a block. part [splits, rows, hdim]; totals [splits, rows, 2]: row max in base 2, row sum."""
    sums = cuda.shared.array((SHARES, LANES, 5), float32)
    wait_for_launch()
    lane, share, row = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y), uint32(cuda.blockIdx.x)
    dim = uint32(uint32(4) * (uint32(cuda.blockIdx.y) * uint32(LANES) + lane))
    top, split = NO_KEY, lane
    while split < splits:
        top = max(top, totals[uint64(2) * (uint64(split) * uint64(rows) + uint64(row))])
        split += uint32(LANES)
    for bit in range(5):
        top = max(top, cuda.shfl_xor_sync(FULL_MASK, top, 16 >> bit))
    total, x = float32(0.0), make_float4(float32(0.0), float32(0.0), float32(0.0), float32(0.0))
    split = share
    while split < splits:
        at = uint64(split) * uint64(rows) + uint64(row)
        row_max, row_sum = ld2(totals, uint64(2) * at)
        by = exp2(row_max - top)
        total += by * row_sum
        if dim < hdim:
            y = ld4(part, at * uint64(hdim) + uint64(dim))
            x = make_float4(x.x + by * y.x, x.y + by * y.y, x.z + by * y.z, x.w + by * y.w)
        split += uint32(SHARES)
    sums[share, lane, 0], sums[share, lane, 1], sums[share, lane, 2] = x.x, x.y, x.z
    sums[share, lane, 3], sums[share, lane, 4] = x.w, total
    cuda.syncthreads()
    if share == 0 and dim < hdim:
        for other in range(1, SHARES):
            x = make_float4(
                x.x + sums[other, lane, 0], x.y + sums[other, lane, 1], x.z + sums[other, lane, 2],
                x.w + sums[other, lane, 3],
            )  # fmt: skip
            total += sums[other, lane, 4]
        by = float32(0.0)
        if total != float32(0.0):
            by = float32(1.0) / total
        head = uint32(row // seq_q)
        batch = uint32(head // heads)
        to = rows_of(out, batch, uint32(head - batch * heads), uint32(row - head * seq_q))
        st4(to, dim, make_float4(x.x * by, x.y * by, x.z * by, x.w * by))


def launch_combine(problem: Problem, splits: int) -> Launch:
    rows, names = problem.batch * problem.heads * problem.seq_q, ("part", "totals", "out")
    return Launch(
        Kernel(combine, (FLOATS, FLOATS, ROWS, *(UINT,) * 5)),
        grid=(rows, -(-problem.hdim // (4 * LANES))),
        block=(LANES, SHARES),
        args=(*names, *strides(problem, "out"), problem.heads, problem.seq_q, problem.hdim, rows, splits),
    )


def splits_of(problem: Problem, launch: Launch) -> int:
    """How many parts an attention leaves of a row; 0 where it leaves the output."""
    if not getattr(launch.shape, "splits", False):
        return 0
    tiles = problem.batch * problem.heads * -(-problem.seq_q // launch.shape.queries)
    return math.prod(launch.grid) // (launch.cluster * tiles)


def workspace(problem: Problem, launches: Sequence[Launch]) -> dict[str, tuple[int, ...]]:
    """float32 shapes of what launches leave to those behind them; concurrent calls need memory of their own."""
    rows, splits = problem.batch * problem.heads * problem.seq_q, max(splits_of(problem, launch) for launch in launches)
    shapes = {
        "k_embedded": problem.kv_shape,
        "part": (splits, rows, problem.hdim), "totals": (splits, rows, 2),
    }  # fmt: skip
    return {name: shape for name, shape in shapes.items() if any(name in launch.args for launch in launches)}
