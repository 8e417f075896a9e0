"""Kernel that embeds Q or K before the attention kernel, which may start early (programmatic dependent launch)."""

import functools
from typing import Any

from numba import cuda, float32

from ...device import cint, cuint, make_float4, st4
from ...device.rows import ROWS, quotient, reciprocal_of, rows_of
from ...version import Kernel, Launch
from ..tiles import launch_dependents
from .embedding import Embedding, loader_of, no_values
from .launch import Operands
from .schedule import SIZES

SEQ, DIMS, EACH = 32, 64, 2  # rows and dims of a block, whose threads have four dims of EACH rows
COLUMNS, STEP, VALUES = DIMS // 4, SEQ // EACH, 4 * EACH


@functools.cache
def kernel_of(embedding: Embedding, table_type: Any, overlap: bool) -> Kernel:
    load, table_of_batch = loader_of(embedding.half_split), embedding.table_of_batch
    per_dim, per_position, apply = embedding.per_dim, embedding.per_position, embedding.apply

    def embed_rows(x, embedded, table, sizes):
        head, tid = cuint(cuda.blockIdx.x), cuint(cuda.threadIdx.x)
        batch = quotient(head, sizes.kv_heads, sizes.reciprocal)
        head = head - batch * sizes.kv_heads
        if table_of_batch is not None:
            table = table_of_batch(table, batch)
        dim, first = cuint(cuda.blockIdx.y) * DIMS + tid % COLUMNS * 4, cuint(cuda.blockIdx.z) * SEQ + tid // COLUMNS
        values = cuda.local.array(VALUES, float32)
        for i in range(EACH):
            row = rows_of(x, batch, head, first + i * STEP)
            four = load(row, dim, cuint(0), first + i * STEP < sizes.seq_k, sizes.embedded_dim, sizes.hdim)
            values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3] = four.x, four.y, four.z, four.w
        dim_values = no_values(table, dim)
        if dim < sizes.embedded_dim:
            dim_values = per_dim(table, dim)
        for i in range(EACH):
            row = first + i * STEP
            if row < sizes.seq_k and dim < sizes.hdim:
                four = make_float4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3])
                if dim < sizes.embedded_dim:
                    position = cint(sizes.q_offset + row)
                    s, t, u, v = per_position(table, position, dim, dim_values, sizes.hdim)
                    four = apply(four, s, t, u, v)
                st4(rows_of(embedded, batch, head, row), dim, four)
        if overlap:
            launch_dependents()  # not earlier: blocks of the attention kernel would share SMs while others are idle

    embed_rows.__name__ = embed_rows.__qualname__ = f"embed_rows_{embedding.name}" + "_pdl" * overlap
    return Kernel(embed_rows, (ROWS, ROWS, table_type, SIZES), STEP * COLUMNS)


def embed_rows(call: Operands, name: str = "k", overlap: bool = False) -> Launch:
    """Embed the rows of `name`, q or k, into the buffer `<name>_embedded`, of the same shape, pairs side by side."""
    p, into = call.problem, f"{name}_embedded"
    seq_q, seq_k, hdim, embedded_dim, q_offset, *rest = call.numbers
    heads, rows, seq, offset = (p.heads, p.seq_q, seq_q, q_offset) if name == "q" else (p.kv_heads, p.seq_k, seq_k, 0)
    table = (call.table,) if isinstance(call.table, str) else call.table
    sizes = (heads, reciprocal_of(heads), seq, seq, hdim, embedded_dim, offset, *rest)
    return Launch(
        kernel_of(call.embedding, call.table_type, overlap),
        grid=(p.batch * heads, -(-p.hdim // DIMS), -(-rows // SEQ)),
        block=(STEP * COLUMNS,),
        args=(name, *call.strides(name), into, *call.strides(into), *table, *sizes),
    )
