"""The wgmma core: the embedding of fragments of K, in registers."""

from typing import Any

from numba import cuda

from ....device import cint, make_float4
from ..embedding import Embedding
from ..shape import GROUP
from .copy import HALF
from .shape import Shape


def key_embedder(shape: Shape, embedding: Embedding) -> tuple[Any, Any]:
    """Device functions for the fragment of a group of K, before its products.

    load_dims(values, scope, thread, group, first_dim): what all keys share, for a thread's dims
    embed(x, dim_values, scope, thread, group, start_key, first_dim): of what `load_keys` loaded
    """
    span, half_split = GROUP * shape.cluster, embedding.half_split
    per_dim, per_position, apply = embedding.per_dim, embedding.per_position, embedding.apply

    @cuda.jit(device=True)
    def dim_of(group, half, member, first_dim):
        """The first of four embedded dims that a thread has in one half of a group."""
        dim = first_dim + group * span
        if half_split:
            return dim + 8 * member + 4 * half
        return dim + half * HALF + 4 * member

    @cuda.jit(device=True)
    def load_dims(values, scope, thread, group, first_dim):
        for half in range(2):
            dim, at = dim_of(group, half, thread.member, first_dim), 4 * half
            if dim < scope.sizes.embedded_dim:
                x = per_dim(scope.table, dim)
                values[at], values[at + 1], values[at + 2], values[at + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def embed(x, dim_values, scope, thread, group, start_key, first_dim):
        sizes = scope.sizes
        for half in range(2):
            dim, at = dim_of(group, half, thread.member, first_dim), 4 * half
            if dim < sizes.embedded_dim:
                values = make_float4(dim_values[at], dim_values[at + 1], dim_values[at + 2], dim_values[at + 3])
                for i in range(2):
                    position = cint(min(start_key + thread.key + i, scope.last_key - 1))
                    at = 8 * half + 4 * i
                    a, b, c, d = at, at + 1, at + 2, at + 3
                    if half_split:
                        at = 2 * half + 4 * i
                        a, b, c, d = at, at + 8, at + 1, at + 9
                    s, t, u, v = per_position(scope.table, position, dim, values, sizes.hdim)
                    four = apply(make_float4(x[a], x[b], x[c], x[d]), s, t, u, v)
                    x[a], x[b], x[c], x[d] = four.x, four.y, four.z, four.w

    return load_dims, embed
