"""Fused attention in Triton with RoPE inside, as a user would write it: one tile of queries loops over the keys.

For head dims whose tile does not fit shared memory, it loops over slices of the dims as well. Keys are rotated as they
are loaded. A product is three TF32 products; one is Triton's default. PyTorch's builds for CUDA include Triton; without
it these functions are plain Python that is never called.
"""

# mypy: allow-incomplete-defs
from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

INTEGERS = ("group", "programs", "seq_q", "seq_k", "q_offset")


def _jit(function: Callable) -> Any:
    """Without specialisation on integers, so that one binary serves every shape of a head dim."""
    integers = [name for name in INTEGERS if name in function.__code__.co_varnames]
    return function if triton is None else triton.jit(function, do_not_specialize=integers)


@_jit
def _rotated(x, cos, sin, rows, inside, first, pairs, ROWS: tl.constexpr, DIMS: tl.constexpr):
    """x `[ROWS, DIMS]`: pairs (2i, 2i + 1) of a head from the pair `first` on, each rotated if its number is below
    `pairs`.

    cos and sin are `[seq, pairs]`; the rows `rows` are read where `inside` is true.
    """
    pair = first + tl.arange(0, DIMS // 2)[None, :]
    turns = inside & (pair < pairs)
    at = rows[:, None] * pairs + pair
    c = tl.load(cos + at, mask=turns, other=1.0)
    s = tl.load(sin + at, mask=turns, other=0.0)
    even, odd = tl.split(tl.reshape(x, [ROWS, DIMS // 2, 2]))
    return tl.reshape(tl.join(even * c - odd * s, even * s + odd * c), [ROWS, DIMS])


@_jit
def attend(
    q, k, v, out, q_cos, q_sin, k_cos, k_sin, pairs, group, programs, seq_q, seq_k, q_offset, scale,
    HDIM: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Attention of BLOCK_M queries of one head, scores summed over slices of BLOCK_D dims.

    q, out `[batch, heads, seq_q, HDIM]`, k, v `[batch, heads / group, seq_k, HDIM]`, float32 and contiguous; cos and
    sin `[seq, pairs]` for the positions of the queries and of the keys. `scale` is the softmax scale times log2(e).
    With CAUSAL, query i attends to the keys up to q_offset + i. MASKED: some key of a tile may be masked. `programs` is
    the size of the grid: a launch with another size is tuned anew.

    A program writes BLOCK_V dims of the output. So HDIM / BLOCK_V programs compute the same scores, and Q and K are
    rotated again for every tile of keys.
    """
    tile, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_head = (head // group).to(tl.int64)  # counts through the batch, as heads is a multiple of group
    query = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = (query < seq_q)[:, None]
    slice_dim = tl.arange(0, BLOCK_D)[None, :]
    out_dim = part * BLOCK_V + tl.arange(0, BLOCK_V)[None, :]
    q += head.to(tl.int64) * seq_q * HDIM
    out += head.to(tl.int64) * seq_q * HDIM
    k += kv_head * seq_k * HDIM
    v += kv_head * seq_k * HDIM

    acc = tl.zeros([BLOCK_M, BLOCK_V], tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    end = seq_k
    if CAUSAL:
        end = tl.minimum(seq_k, q_offset + (tile + 1) * BLOCK_M)
    for start in tl.range(0, end, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        loaded = (key < seq_k)[:, None]
        scores = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for first in tl.range(0, HDIM, BLOCK_D):
            q_slice = tl.load(q + (query[:, None] * HDIM + first + slice_dim), mask=inside, other=0.0)
            k_slice = tl.load(k + (key[:, None] * HDIM + first + slice_dim), mask=loaded, other=0.0)
            q_slice = _rotated(q_slice, q_cos, q_sin, query, inside, first // 2, pairs, BLOCK_M, BLOCK_D)
            k_slice = _rotated(k_slice, k_cos, k_sin, key, loaded, first // 2, pairs, BLOCK_N, BLOCK_D)
            scores = tl.dot(q_slice, tl.trans(k_slice), scores, input_precision="tf32x3")
        scores *= scale
        if MASKED:
            visible = (key < seq_k)[None, :]
            if CAUSAL:
                visible = visible & (key[None, :] <= (query + q_offset)[:, None])
            scores = tl.where(visible, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))  # finite: every query attends to key 0
        weights = tl.exp2(scores - new_max[:, None])
        shrink = tl.exp2(row_max - new_max)
        row_sum = row_sum * shrink + tl.sum(weights, 1)
        v_slice = tl.load(v + (key[:, None] * HDIM + out_dim), mask=loaded, other=0.0)
        acc = tl.dot(weights, v_slice, acc * shrink[:, None], input_precision="tf32x3")
        row_max = new_max
    tl.store(out + (query[:, None] * HDIM + out_dim), acc / row_sum[:, None], mask=inside)
