"""Parts of the float64 models of wrong versions. Each model itself is in the file of its version.

A model takes the problem and q, k and v, and returns what the version returns, NaN included. Every model is linear in v
with weights of at least 0. So for v = 1 it returns the sum of the weights of each output. That sum is 1 where the
softmax is right. Elsewhere it is the factor by which the fp32 error grows. There are two exceptions among the
ablations: one has negative weights, which only tightens the allowance, and one ignores v.
"""

import math
from collections.abc import Callable

import numpy as np

from ..constants import BLOCK_K, FREQUENCY_BASE, THREADS
from ..version import Problem

Array = np.ndarray

WARP = 32
WARPS = THREADS // WARP


def scaled_scores(problem: Problem, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Scores times the softmax scale, `[batch, heads, seq_q, seq_k]`, in float64."""
    return q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * problem.softmax_scale


def rotate_pairs(x: np.ndarray, position: np.ndarray, rotary_dim: int, pairs: int | None = None) -> np.ndarray:
    """x with its first `rotary_dim` dims rotated by `position`, which broadcasts against x's leading axes.

    With `pairs`, the frequencies of the first `pairs` pairs repeat; by default every pair has its own.
    """
    pair = np.arange(rotary_dim // 2) % (pairs or rotary_dim)
    angle = position[..., None] * FREQUENCY_BASE ** (-2.0 * pair / rotary_dim)
    turned = x.astype(np.float64)
    even, odd = x[..., 0:rotary_dim:2], x[..., 1:rotary_dim:2]
    turned[..., 0:rotary_dim:2] = even * np.cos(angle) - odd * np.sin(angle)
    turned[..., 1:rotary_dim:2] = even * np.sin(angle) + odd * np.cos(angle)
    return turned


def warp_of(count: int) -> np.ndarray:
    """The warp that owns each of `count` keys or dims, which are assigned to the threads of a block round-robin."""
    return np.arange(count) % THREADS // WARP


def unshared(values: np.ndarray, reduce: Callable[..., np.ndarray], identity: float) -> np.ndarray:
    """Results by warp of a block reduction over the last axis that lacks its last store: `[..., warps]`.

    Warp 0 has the result of the block, every other warp the result of its own keys.
    """
    owner = warp_of(values.shape[-1])
    whole = reduce(values, axis=-1)
    own = [
        reduce(values[..., owner == warp], axis=-1) if (owner == warp).any() else np.full_like(whole, identity)
        for warp in range(1, WARPS)
    ]
    return np.stack([whole, *own], axis=-1)


def two_pass_unshared(scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Softmax in which each warp uses the maximum and sum of its own keys."""
    owner = warp_of(scores.shape[-1])
    p = np.exp(scores - unshared(scores, np.max, -math.inf)[..., owner])
    return p / unshared(p, np.sum, 0.0)[..., owner] @ v


def online_unshared(scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Online softmax in which each warp has its own running maximum and sum, and its own dims.

    A warp without keys keeps a maximum of -inf, whose correction exp(-inf + inf) is NaN.
    """
    seq_k, hdim = v.shape[-2:]
    row_max = np.full((*scores.shape[:-1], WARPS), -math.inf)
    row_sum = np.zeros_like(row_max)
    out = np.zeros((*scores.shape[:-1], hdim))
    dims = warp_of(hdim)
    with np.errstate(invalid="ignore"):
        for start in range(0, seq_k, BLOCK_K):
            tile = scores[..., start : start + BLOCK_K]
            new_max = np.maximum(row_max, unshared(tile, np.max, -math.inf))
            correction = np.exp(row_max - new_max)
            p = np.exp(tile - new_max[..., warp_of(tile.shape[-1])])
            row_sum = correction * row_sum + unshared(p, np.sum, 0.0)
            if start > 0:
                out *= correction[..., dims]
            out += p @ v[..., start : start + BLOCK_K, :]
            row_max = new_max
        return out / row_sum[..., dims]


def softmax(scores: np.ndarray) -> np.ndarray:
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)
