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
from ....limits import Share
from ....version import Kernel, Launch, Problem
from ..core import Phases, make_kernel
from ..embedding import Embedding
from ..exchange import Exchange, exchange
from ..launch import Operands, launch
from ..schedule import PARTS, SIZES
from ..shape import GROUP, WHOLE
from ..softmax import STATE, softmax_of
from . import phases
from .choose import choose
from .copy import copier
from .embed import key_embedder
from .multiply import output_by_products
from .query import query_of
from .shape import KEYS, Shape
from .stream import make_kernel as stream


def phases_of(shape: Shape, embedding: Embedding, sends: Exchange, paired: int) -> Phases:
    """The phases for that shape and embedding; `paired` groups of a slice may have embedded dims."""
    embeds_keys, stored = embedding.keys, embedding.stored
    group_floats, accumulators = 4 * shape.groups, shape.queries // 2
    load_query, load_query_dims, stage = query_of(shape, embedding, paired)
    load_key_dims, _ = key_embedder(shape, embedding)
    weight_row = phases.weight_sender(shape, sends)
    begin, softmax = softmax_of(
        shape, embedding, shape.per_tile_accumulator, sends.load_scores, weight_row, sends.send_factors
    )

    @cuda.jit(device=True)
    def load(shared, query, query_dims, key_dims, queries, tile, scope, thread):
        """Q to registers."""
        load_query(query, queries, thread, tile.first_dim, scope.sizes)
        if embeds_keys:
            load_key_dims(key_dims, scope, thread, thread.warpgroup, tile.first_dim)
        load_query_dims(query_dims, scope, thread, tile.first_dim)
        if not stored:
            cuda.syncthreads()  # keeps the compiler from moving the loads after the copies

    @cuda.jit(device=True)
    def embed(shared, key_dims, tile, scope, thread, start):
        """K is embedded in registers, by `score`."""
        cp_async_wait()

    return Phases(
        registers=(
            group_floats * shape.query_passes, group_floats, 8, accumulators,
            shape.panels * shape.mmas_per_panel * accumulators, (STATE, shape.rows_of_warp),
        ),
        thread_of=phases.thread_of(shape), load=load, stage=stage, begin=begin, embed=embed, softmax=softmax,
        copy_keys=copier(shape, shape.layout["keys"], embedding.halves, paired),
        copy_values=copier(shape, shape.values_at),
        score=phases.scores_of(shape, embedding, paired), send_scores=phases.score_sender(shape, sends),
        weigh=output_by_products(shape), store=phases.output_of(shape),
    )  # fmt: skip


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any, paired: int) -> Kernel:
    name = f"{shape.name}_{embedding.name}" + f"_{paired}_paired" * (paired < shape.groups)
    sends = exchange(shape, 2 * KEYS)
    made = phases_of(shape, embedding, sends, paired)
    if shape.streams:
        function = stream(shape, embedding, sends, made, paired, name)
    else:
        function = make_kernel(shape, embedding, sends, made, name)
    signature = (ROWS,) * 4 + (table_type, PARTS, SIZES)
    return Kernel(function, signature, shape.threads, min_blocks=shape.blocks, architecture="sm_90a")


def attend(
    problem: Problem, *what: Any, shape: Shape | None = None, splits: int = 0, share: Share = WHOLE, **named: Any
) -> Launch:
    """The launch of `Operands`, of which `what` and `named` are fields.

    A shape that splits the keys does so in `splits`, by default one for each tile.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or the tiles do not fit shared memory.
    """
    call = Operands(problem, *what, **named)
    if shape is None:
        shape, splits = choose(problem, call.embedded_dim if call.embedding.keys else 0, share)
    if shape.splits:
        call = replace(call, out="part")
    # Where few of many dims rotate, those of one group of each slice, what is compiled for that is shorter.
    few = 0 < call.embedded_dim <= GROUP * shape.cluster and not (call.embedding.stored and call.embedding.half_split)
    kernel = kernel_of(shape, call.embedding, call.table_type, 1 if few else shape.groups)
    split_keys = -(-problem.seq_k // ((splits or problem.seq_k) * KEYS)) * KEYS if shape.splits else 0
    return launch(kernel, shape, call, shape.streams, split_keys)
