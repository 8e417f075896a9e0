"""The launch that embeds K once, before the attention that overlaps it, where many tiles of queries share keys."""

import functools
from typing import Any

from numba import cuda

from ....device.rows import ROWS, quotient, reciprocal_of, rows_of
from ....version import Kernel, Launch
from ...tiles import launch_dependents
from ..embedding import Embedding
from ..launch import Call, strides
from ..schedule import SIZES, Source
from ..shape import COPIERS
from .embed import rotated_dims, tile_embedder
from .shape import KEYS, Shape

SLICE = Shape(cluster=1, queries=8, width=64, warpgroups=4)  # dims and threads of a block


@functools.cache
def kernel_of(embedding: Embedding, table_type: Any, overlap: bool) -> Kernel:
    embed_tile, width = tile_embedder(SLICE, embedding, SLICE.groups), SLICE.width
    half_split, table_of_batch = embedding.half_split, embedding.table_of_batch

    def embed_keys(k, k_embedded, table, sizes):
        shared_head, first_dim = cuda.blockIdx.x, cuda.blockIdx.y * width
        first_key = cuda.blockIdx.z * KEYS
        batch = quotient(shared_head, sizes.kv_heads, sizes.reciprocal)
        head = shared_head - batch * sizes.kv_heads
        if table_of_batch is not None:
            table = table_of_batch(table, batch)
        lane_dim = cuda.threadIdx.x % COPIERS * 4
        if half_split:
            lane_dim = rotated_dims(lane_dim)
        if first_key < sizes.seq_k:
            source, to = rows_of(k, batch, head, first_key), rows_of(k_embedded, batch, head, first_key)
            count, copied_dim = sizes.seq_k - first_key, first_dim + lane_dim
            embed_tile(Source(source, k.row, count), to, table, first_key, first_dim, copied_dim, sizes)
        if overlap:
            launch_dependents()  # not before: blocks that attend would share SMs while others are idle

    embed_keys.__name__ = embed_keys.__qualname__ = f"embed_keys_{embedding.name}" + "_pdl" * overlap
    return Kernel(embed_keys, (ROWS, ROWS, table_type, SIZES), SLICE.threads)


def embed_keys(call: Call, overlap: bool = True) -> Launch:
    """Embed K into `k_embedded`, [batch, kv_heads, seq_k, hdim], for an attention that takes it as stored."""
    problem, rows = call.problem, strides(call.problem, "k")
    table = (call.table,) if isinstance(call.table, str) else call.table
    tensors = ("k", *rows, "k_embedded", *rows, *table)
    return Launch(
        kernel_of(call.embedding, call.table_type, overlap),
        grid=(problem.batch * problem.kv_heads, -(-problem.hdim // SLICE.width), -(-problem.seq_k // KEYS)),
        block=(SLICE.threads,),
        args=(*tensors, problem.kv_heads, reciprocal_of(problem.kv_heads), *call.numbers),
        embedding=call.embedding,
    )
