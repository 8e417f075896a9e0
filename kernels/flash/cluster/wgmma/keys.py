"""The launch that embeds K once, before the attention that overlaps it, where many tiles of queries share keys."""

import functools
from typing import Any

from numba import cuda

from ....device.cint import cint
from ....device.cuint import cuint
from ....device.rows import ROWS, quotient, reciprocal_of, rows_of
from ....device.vector import st4
from ....version import Kernel, Launch
from ...tiles import launch_dependents
from ..embedding import Embedding, loader_of
from ..launch import Call, strides
from ..schedule import SIZES

KEYS, DIMS = 32, 64  # of a block, whose threads have four dims of a key


@functools.cache
def kernel_of(embedding: Embedding, table_type: Any, overlap: bool) -> Kernel:
    load, table_of_batch = loader_of(embedding.half_split), embedding.table_of_batch
    per_dim, per_position, apply = embedding.per_dim, embedding.per_position, embedding.apply

    def embed_keys(k, k_embedded, table, sizes):
        head, tid = cuint(cuda.blockIdx.x), cuint(cuda.threadIdx.x)
        batch = quotient(head, sizes.kv_heads, sizes.reciprocal)
        head = head - batch * sizes.kv_heads
        if table_of_batch is not None:
            table = table_of_batch(table, batch)
        dim = cuint(cuda.blockIdx.y) * DIMS + tid % (DIMS // 4) * 4
        key = cuint(cuda.blockIdx.z) * KEYS + tid // (DIMS // 4)
        if key < sizes.seq_k and dim < sizes.hdim:
            x = load(rows_of(k, batch, head, key), dim, cuint(0), True, sizes.embedded_dim, sizes.hdim)
            if dim < sizes.embedded_dim:
                s, t, u, v = per_position(table, cint(key), dim, per_dim(table, dim), sizes.hdim)
                x = apply(x, s, t, u, v)
            st4(rows_of(k_embedded, batch, head, key), dim, x)
        if overlap:
            launch_dependents()  # not before: blocks that attend would share SMs while others are idle

    embed_keys.__name__ = embed_keys.__qualname__ = f"embed_keys_{embedding.name}" + "_pdl" * overlap
    return Kernel(embed_keys, (ROWS, ROWS, table_type, SIZES), KEYS * DIMS // 4)


def embed_keys(call: Call, overlap: bool = True) -> Launch:
    """Embed K into `k_embedded`, [batch, kv_heads, seq_k, hdim], for an attention that takes it as stored."""
    problem, rows = call.problem, strides(call.problem, "k")
    table = (call.table,) if isinstance(call.table, str) else call.table
    sizes = (problem.kv_heads, reciprocal_of(problem.kv_heads), *call.numbers)
    return Launch(
        kernel_of(call.embedding, call.table_type, overlap),
        grid=(problem.batch * problem.kv_heads, -(-problem.hdim // DIMS), -(-problem.seq_k // KEYS)),
        block=(KEYS * DIMS // 4,),
        args=("k", *rows, "k_embedded", *rows, *table, *sizes),
        embedding=call.embedding,
    )
