"""What the log's wrong versions compute instead, in float64.

A version whose plan says "wrong" has a model here. It takes the problem and q, k and v, and gives what the version
gives: NaN where that is NaN. Every model is linear in v with weights of 0 or more, so on a v of ones it gives the sum
of each output's weights (`total_weight`): 1 where a softmax is right, and as often the fp32 error of a right one as
it is off where it is wrong. (Two ablations differ: one has negative weights, which only makes the allowance smaller,
one ignores v.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from .fast_math import SUFFIX
from .log import BLOCK_K, FREQUENCY_BASE, OPT_IN_SHARED_LIMIT, THREADS
from .version import Problem

Model = Callable[[Problem, np.ndarray, np.ndarray, np.ndarray], np.ndarray]

WARP = 32
WARPS = int(THREADS) // WARP
COVERED = 2048  # dims that register tiling writes; the others keep what was there
POSITIONS = 64  # of a token in the separate path: its index modulo this


def scaled_scores(problem: Problem, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """`[batch, heads, seq_q, seq_k]` in float64."""
    return q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * problem.softmax_scale


def rotated(x: np.ndarray, position: np.ndarray, rotary_dim: int, pairs: int | None = None) -> np.ndarray:
    """x with its first `rotary_dim` dims turned by `position`, which is broadcast against x's leading axes.

    The frequencies are those of the first `pairs`, again and again; by default every pair has its own.
    """
    pair = np.arange(rotary_dim // 2) % (pairs or rotary_dim)
    angle = position[..., None] * FREQUENCY_BASE ** (-2.0 * pair / rotary_dim)
    turned = x.astype(np.float64)
    even, odd = x[..., 0:rotary_dim:2], x[..., 1:rotary_dim:2]
    turned[..., 0:rotary_dim:2] = even * np.cos(angle) - odd * np.sin(angle)
    turned[..., 1:rotary_dim:2] = even * np.sin(angle) + odd * np.cos(angle)
    return turned


def warp_of(count: int) -> np.ndarray:
    """The warp that owns each of `count` keys or dims, dealt out to a block's threads in turn."""
    return np.arange(count) % int(THREADS) // WARP


def unshared(values: np.ndarray, reduce: Callable[..., np.ndarray], identity: float) -> np.ndarray:
    """What each warp gets from a block reduction over the last axis without its last store: `[..., warps]`.

    Warp 0 has the block's value, every other warp that of its own keys.
    """
    owner = warp_of(values.shape[-1])
    whole = reduce(values, axis=-1)
    own = [
        reduce(values[..., owner == warp], axis=-1) if (owner == warp).any() else np.full_like(whole, identity)
        for warp in range(1, WARPS)
    ]
    return np.stack([whole, *own], axis=-1)


def two_pass_unshared(scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Softmax in which each warp exponentiates and divides its keys by its own maximum and sum."""
    owner = warp_of(scores.shape[-1])
    p = np.exp(scores - unshared(scores, np.max, -math.inf)[..., owner])
    return p / unshared(p, np.sum, 0.0)[..., owner] @ v


def online_unshared(scores: np.ndarray, v: np.ndarray, tile_keys: int = int(BLOCK_K)) -> np.ndarray:
    """Online softmax in which each warp has its own running maximum and sum, and its own dims.

    A warp that holds no key keeps a maximum of -inf, whose correction exp(-inf + inf) is NaN.
    """
    seq_k, hdim = v.shape[-2:]
    row_max = np.full((*scores.shape[:-1], WARPS), -math.inf)
    row_sum = np.zeros_like(row_max)
    out = np.zeros((*scores.shape[:-1], hdim))
    dims = warp_of(hdim)
    with np.errstate(invalid="ignore"):
        for start in range(0, seq_k, tile_keys):
            tile = scores[..., start : start + tile_keys]
            new_max = np.maximum(row_max, unshared(tile, np.max, -math.inf))
            correction = np.exp(row_max - new_max)
            p = np.exp(tile - new_max[..., warp_of(tile.shape[-1])])
            row_sum = correction * row_sum + unshared(p, np.sum, 0.0)
            if start > 0:
                out *= correction[..., dims]
            out += p @ v[..., start : start + tile_keys, :]
            row_max = new_max
        return out / row_sum[..., dims]


def softmax(scores: np.ndarray) -> np.ndarray:
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def token_positions(problem: Problem) -> np.ndarray:
    """`[batch, heads, seq_k]`: the position of each token in the separate path; NaN behind the end of its tables."""
    position = np.arange(problem.batch * problem.heads * problem.seq_k) % POSITIONS
    behind = position >= problem.seq_k
    return np.where(behind, np.nan, position).reshape(problem.batch, problem.heads, problem.seq_k)


def attention_baseline(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return two_pass_unshared(scaled_scores(problem, q, k), v)


def attention_online(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return online_unshared(scaled_scores(problem, q, k), v)


def attention_register_tiling(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    out = attention_online(problem, q, k, v)
    out[..., COVERED:] = 0.0
    return out


def attention_tensor_core_v1(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Of the lanes that store a score, the last one, whose group summed nothing, has the last word."""
    return online_unshared(np.zeros_like(scaled_scores(problem, q, k)), v)


def attention_tensor_core_v2(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return softmax(scaled_scores(problem, q.astype(np.float16), k.astype(np.float16))) @ v


def added_tiles(tile_bytes: int, problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The outputs of tiles, each normalised by itself; a tile's keys and values take `tile_bytes`, and are 4 to 32."""
    scores = scaled_scores(problem, q, k)
    tile_keys = min(max(tile_bytes // (8 * problem.hdim), 4), 32)
    tiles = [slice(start, start + tile_keys) for start in range(0, problem.seq_k, tile_keys)]
    return np.sum([softmax(scores[..., tile]) @ v[..., tile, :] for tile in tiles], axis=0)


def rope_v1a(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    position = np.arange(problem.seq_k)
    q, k = (rotated(x, position, problem.rotary_dim) for x in (q, k))
    return online_unshared(scaled_scores(problem, q, k), v)


def rope_separate(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k = (rotated(x, token_positions(problem), problem.rotary_dim) for x in (q, k))
    return softmax(scaled_scores(problem, q, k)) @ v


def rope_v7(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q = rotated(q, np.arange(problem.seq_q), problem.rotary_dim)
    k = rotated(k, token_positions(problem), problem.rotary_dim)
    return softmax(scaled_scores(problem, q, k)) @ v


def rope_v1c_no_tables(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    position = np.arange(problem.seq_k)
    q, k = rotated(q, position, problem.rotary_dim), rotated(k, position, problem.rotary_dim, pairs=2)
    return softmax(scaled_scores(problem, q, k)) @ v


def rope_v7_fused_k(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q = rotated(q, token_positions(problem), problem.rotary_dim)
    k = rotated(k, np.arange(problem.seq_k), problem.rotary_dim)
    return softmax(scaled_scores(problem, q, k)) @ v


def rotated_queries(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Of a version that leaves K as it is."""
    return softmax(scaled_scores(problem, rotated(q, np.arange(problem.seq_q), problem.rotary_dim), k)) @ v


def embedded(problem: Problem, x: np.ndarray, pair: np.ndarray) -> np.ndarray:
    """x plus the sine and cosine, at its position, of the pairs `pair`: one for every pair of its dims."""
    angle = np.arange(problem.seq_k)[:, None] * FREQUENCY_BASE ** (-2.0 * pair / problem.hdim)
    return x + np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(problem.seq_k, problem.hdim)


def first_pair_embedded(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Of a version that adds the first pair's sine and cosine to every pair."""
    q, k = (embedded(problem, x, np.zeros(problem.hdim // 2)) for x in (q, k))
    return softmax(scaled_scores(problem, q, k)) @ v


def keys_embedded(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Of a version that leaves Q as it is."""
    return softmax(scaled_scores(problem, q, embedded(problem, k, np.arange(problem.hdim // 2)))) @ v


def fp16_phase4(
    problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray, block_rows: int = 32, first_row: int = 1
) -> np.ndarray:
    """Rows `first_row` to 3 of a block take their maximum from memory that nobody wrote: NaN, as in the emulator."""
    scores = scaled_scores(problem, q, k)
    if problem.causal:
        scores[..., np.triu(np.ones((problem.seq_q, problem.seq_k), dtype=bool), 1)] = -math.inf
    out = softmax(scores) @ v
    out[..., np.isin(np.arange(problem.seq_q) % block_rows, range(first_row, 4)), :] = np.nan
    return out


def mean_of_values(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Of a version whose scores are all the same."""
    return softmax(0.0 * scaled_scores(problem, q, k)) @ v


def scores_as_weights(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The mean of all values, each times its score, which may be negative."""
    return scaled_scores(problem, q, k) @ v / problem.seq_k


def sums_of_weights(problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Phase 4's for values of 1."""
    return fp16_phase4(problem, q, k, np.ones_like(v))


MODELS: dict[str, Model] = {
    "attention_baseline": attention_baseline,
    "attention_online": attention_online,
    "attention_register_tiling": attention_register_tiling,
    "attention_tensor_core_v1": attention_tensor_core_v1,
    "attention_tensor_core_v1_227k": attention_tensor_core_v1,
    "attention_tensor_core_v2": attention_tensor_core_v2,
    "attention_tensor_core_v2_one_query": attention_tensor_core_v2,
    "attention_multi_query": partial(added_tiles, 45_000),
    "attention_multi_query_227k": partial(added_tiles, OPT_IN_SHARED_LIMIT - 640),  # scores and reduction
    "attention_async_double_buffer": attention_online,
    "attention_async_double_buffer_227k": attention_online,
    "attention_async_sliced": attention_online,
    "sinusoidal_v1_registers": first_pair_embedded,
    "sinusoidal_hybrid_v1_no_embedding": keys_embedded,
    "rope_separate": rope_separate,
    "rope_v1a": rope_v1a,
    "rope_v7": rope_v7,
    "rope_v1c_no_tables": rope_v1c_no_tables,
    "rope_v2_no_rotation": rotated_queries,
    "rope_v3_no_rotation": rotated_queries,
    "rope_v6b_no_rotation": rotated_queries,
    "rope_separate_one_sync": rope_separate,
    "rope_v7_global_query": rope_v7,
    "rope_v7_fused_k": rope_v7_fused_k,
    "fp16_phase4": fp16_phase4,
    "fp16_phase4_causal": fp16_phase4,
    "fp16_phase4_no_scores": mean_of_values,
    "fp16_phase4_no_softmax": scores_as_weights,
    "fp16_phase4_no_values": sums_of_weights,
    "fp16_phase4_scalar_loads": fp16_phase4,
    "fp16_phase4_padded": fp16_phase4,
    "fp16_phase4_64x64": partial(fp16_phase4, block_rows=64, first_row=2),
    "fp16_phase4_64x32": partial(fp16_phase4, block_rows=64, first_row=2),
}


def model_of(version: str) -> Model:
    """The model of a version, or of the one whose fast-math twin it is. Raises: KeyError where neither is wrong."""
    return MODELS[version.removesuffix(SUFFIX)]


def total_weight(version: str, problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The sum of the weights that each output of the wrong `version` gives to values."""
    return model_of(version)(problem, q, k, np.ones_like(v))
