"""The phases of the main loop on wgmma: as `mma`, with the products transposed so that they are large enough for it.

Each warpgroup takes some of the dims: as terms of the scores, whose owners sum the parts, and as rows of the output. A
block embeds a tile of K between its load and its products, in registers, unless a launch before has embedded all of K.
"""

import functools
from dataclasses import replace
from typing import Any

from numba import cuda

from ....device.asm import cp_async_wait
from ....device.rows import ROWS
from ....device.wgmma import fence_products
from ....version import Kernel, Launch, Problem
from ..card import SMS
from ..core import Phases, make_kernel
from ..embedding import Embedding
from ..launch import Call, launch
from ..schedule import PARTS, SIZES
from ..shape import GROUP
from . import phases
from .choose import choose
from .copy import copiers
from .embed import dim_loader, key_embedder, loader
from .multiply import output_by_products
from .shape import KEYS, TILE_ALIGNMENT, Shape
from .stream import make_kernel as stream


def phases_of(shape: Shape, embedding: Embedding, paired: int) -> Phases:
    """The phases for that shape and embedding; `paired` groups of a slice may have embedded dims."""
    embeds_query, embeds_keys, half_split = embedding.query, embedding.keys, embedding.half_split
    (copy_keys, copy_values), stored = copiers(shape, embedding.halves, paired), embedding.stored
    load_query, load_dims = loader(shape, half_split, paired, shape.query_passes), dim_loader(shape, embedding, paired)
    (load_key_dims, _), stage_query = key_embedder(shape, embedding), phases.query_stager(shape, embedding, paired)
    sends = phases.exchange_of(shape)
    begin_rows, softmax = phases.rows_softmax(shape, embedding, sends)

    @cuda.jit(device=True)
    def load(shared, query, query_dims, key_dims, queries, tile, scope, thread):
        """Q to registers."""
        sizes, copied_dim = scope.sizes, tile.first_dim + thread.lane_dim
        load_query(query, queries, tile.first_dim, sizes)
        if embeds_keys:
            load_key_dims(key_dims, scope.table, thread.warpgroup, thread.member, tile.first_dim, sizes)
        if embeds_query and copied_dim < sizes.embedded_dim:
            load_dims(query_dims, scope.table, copied_dim, sizes)
        if not stored:
            cuda.syncthreads()  # keeps the compiler from moving the loads after the copies

    @cuda.jit(device=True)
    def stage(shared, query, query_dims, tile, scope, thread):
        """Q embedded, split, to shared memory."""
        stage_query(shared, query, query_dims, tile, scope, thread, tile.first_dim)

    @cuda.jit(device=True)
    def embed(shared, key_dims, tile, scope, thread, start):
        """K is embedded in registers, by `score`."""
        cp_async_wait()

    @cuda.jit(device=True)
    def fence():
        fence_products()

    return Phases(
        registers=phases.registers_of(shape), starter=shape.threads - 1, alignment=TILE_ALIGNMENT,
        thread_of=phases.thread_of(shape, embedding), exchange=sends, load=load, stage=stage, begin=begin_rows,
        copy_keys=copy_keys, copy_values=copy_values, embed=embed, score=phases.scores_of(shape, embedding, paired),
        send_parts=phases.parts_of(shape, sends), softmax=softmax, fence=fence, weigh=output_by_products(shape),
        store=phases.output_of(shape),
    )  # fmt: skip


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any, paired: int) -> Kernel:
    name = f"{shape.name}_{embedding.name}" + f"_{paired}_paired" * (paired < shape.groups)
    made = phases_of(shape, embedding, paired)
    if shape.streams:
        function = stream(shape, embedding, made, paired, name)
    else:
        function = make_kernel(shape, embedding, made, name)
    signature = (ROWS,) * 4 + (table_type, PARTS, SIZES)
    return Kernel(function, signature, shape.threads, min_blocks=shape.blocks, architecture="sm_90a")


def attend(
    problem: Problem, *what: Any, shape: Shape | None = None, splits: int = 0, sms: int = SMS, **named: Any
) -> Launch:
    """The launch of a `Call`, of which `what` and `named` are fields.

    A shape that splits the keys does so in `splits`, by default one for each tile.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or the tiles do not fit shared memory.
    """
    call = Call(problem, *what, **named)
    if shape is None:
        shape, splits = choose(problem, call.embedded_dim if call.embedding.keys else 0, sms)
    if shape.splits:
        call = replace(call, out="part")
    # Where few of many dims rotate, those of one group of each slice, what is compiled for that is shorter.
    few = 0 < call.embedded_dim <= GROUP * shape.cluster and not (call.embedding.stored and call.embedding.half_split)
    kernel = kernel_of(shape, call.embedding, call.table_type, 1 if few else shape.groups)
    split_keys = -(-problem.seq_k // ((splits or problem.seq_k) * KEYS)) * KEYS
    parts = ("totals" if shape.splits else call.k, split_keys, problem.batch * problem.heads * problem.seq_q)
    return launch(kernel, shape, call, parts, shape.streams, -(-problem.seq_k // split_keys) if shape.splits else 1)
