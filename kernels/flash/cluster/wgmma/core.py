"""The phases of the main loop on wgmma: as `mma`, with the products transposed so that they are large enough for it.

Each warpgroup takes some of the dims: as terms of the scores, whose owners sum the parts, and as rows of the output. A
block embeds a tile of K between its load and its products, in registers, or, with `Shape.prerotate_keys`, beforehand
together with all blocks that need it.
"""

import functools
from collections import namedtuple
from typing import Any

import numpy as np
from numba import cuda, types, uint32, uint64

from ....constants import FLOATS, INTS
from ....device.asm import cp_async_wait
from ....device.rows import ROWS
from ....device.vector import advance
from ....device.wgmma import fence_products
from ....version import Buffer, Kernel, Launch, Problem
from ..card import SMS
from ..core import Phases, make_kernel
from ..embedding import Embedding
from ..launch import Call, launch
from ..schedule import SIZES, Source
from ..shape import GROUP
from . import phases
from .choose import choose
from .copy import copiers
from .embed import dim_loader, key_embedder, loader, tile_embedder
from .multiply import output_by_products
from .prerotate import COUNTERS, end_prerotation, prerotation
from .shape import TILE_ALIGNMENT, Shape
from .stream import make_kernel as stream

# Rotated keys, like k, and counters of the blocks that rotate them; neither is read without `prerotate_keys`.
Scratch = namedtuple("Scratch", "keys counters")
SCRATCH = types.NamedTuple((FLOATS, INTS), Scratch)


def phases_of(shape: Shape, embedding: Embedding, paired: int) -> Phases:
    """The phases for that shape and embedding; `paired` groups of a slice may have embedded dims."""
    prerotate, half_split = shape.prerotate_keys, embedding.half_split
    embeds_query, embeds_keys = embedding.query, embedding.keys and not prerotate
    (copy_keys, copy_values), (load_key_dims, _) = copiers(shape, half_split, paired), key_embedder(shape, embedding)
    begin_rotation, rotate, await_rotated = prerotation(shape, tile_embedder(shape, embedding, paired))
    load_query, load_dims = loader(shape, half_split, paired, shape.query_passes), dim_loader(shape, embedding, paired)
    stage_query, sends = phases.query_stager(shape, embedding, paired), phases.exchange_of(shape)
    begin_rows, softmax = phases.rows_softmax(shape, embedding, sends)

    @cuda.jit(device=True)
    def load(shared, query, query_dims, key_dims, queries, keys, tile, scope, thread, scratch):
        """Q to registers; the copy of K, which overlaps the embedding of Q, or the rotation of all keys."""
        sizes, work = scope.sizes, uint32(0)
        if prerotate:
            work = begin_rotation(scratch.counters, tile, thread.tid)
        copied_dim = uint32(tile.first_dim + thread.lane_dim)
        load_query(query, queries, tile.first_dim, sizes)
        if embeds_keys:
            load_key_dims(key_dims, scope.table, thread.warpgroup, thread.member, tile.first_dim, sizes)
        if embeds_query and copied_dim < sizes.embedded_dim:
            load_dims(query_dims, scope.table, copied_dim, sizes)
        if prerotate:
            to = advance(scratch.keys, uint64(tile.shared_head) * uint64(sizes.seq_k) * uint64(sizes.hdim))
            work = rotate(shared, work, thread.tid, keys, to, scope.table, tile.first_dim, copied_dim, sizes)
            keys = Source(to, sizes.hdim, scope.last_key)
        else:
            cuda.syncthreads()  # keeps the compiler from moving the loads after the copies
        return keys, work

    @cuda.jit(device=True)
    def stage(shared, query, query_dims, tile, scope, thread, keys, work):
        """Q embedded, split, to shared memory."""
        stage_query(shared, query, query_dims, tile, scope, thread, tile.first_dim)
        if prerotate:
            work = await_rotated(work, thread.tid, scope.sizes.seq_k)
        return work

    @cuda.jit(device=True)
    def embed(shared, key_dims, tile, scope, thread, start):
        """K is embedded in registers, by `score`."""
        cp_async_wait()

    @cuda.jit(device=True)
    def fence():
        fence_products()

    @cuda.jit(device=True)
    def finish(work, thread):
        if prerotate:
            end_prerotation(work, thread.tid)

    return Phases(
        registers=phases.registers_of(shape), starter=shape.threads - 1, prerotates=prerotate, alignment=TILE_ALIGNMENT,
        thread_of=phases.thread_of(shape, half_split), exchange=sends, load=load, stage=stage, begin=begin_rows,
        copy_keys=copy_keys, copy_values=copy_values, embed=embed, score=phases.scores_of(shape, embedding, paired),
        send_parts=phases.parts_of(shape, sends), softmax=softmax, fence=fence, weigh=output_by_products(shape),
        store=phases.output_of(shape), finish=finish,
    )  # fmt: skip


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any, paired: int) -> Kernel:
    name = f"{shape.name}_{embedding.name}" + f"_{paired}_paired" * (paired < shape.groups)
    made = phases_of(shape, embedding, paired)
    if shape.streams:
        function = stream(shape, embedding, made, paired, name)
    else:
        function = make_kernel(shape, embedding, made, name)
    signature = (ROWS,) * 4 + (table_type, SCRATCH, SIZES)
    return Kernel(function, signature, shape.threads, min_blocks=shape.blocks, architecture="sm_90a")


def attend(problem: Problem, *what: Any, shape: Shape | None = None, sms: int = SMS, **named: Any) -> Launch:
    """The launch of a `Call`, of which `what` and `named` are fields.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or the tiles do not fit shared memory.
    """
    call = Call(problem, *what, **named)
    shape = shape or choose(problem, call.embedded_dim if call.embedding.keys else 0, sms)
    # Where few of many dims rotate, those of one group of each slice, what is compiled for that is shorter.
    few = 0 < call.embedded_dim <= GROUP * shape.cluster and not shape.prerotate_keys
    kernel = kernel_of(shape, call.embedding, call.table_type, 1 if few else shape.groups)
    scratch = ("k_embedded", "states") if shape.prerotate_keys else (call.k, call.k)
    return launch(kernel, shape, call, scratch, shape.streams)


def workspace(problem: Problem, launch: Launch) -> dict[str, Buffer]:
    """The buffers that a launch needs beyond its tensors; concurrent launches need separate ones."""
    if "states" not in launch.args:
        return {}
    states = COUNTERS * problem.batch * problem.kv_heads * launch.cluster
    return {
        "k_embedded": Buffer(problem.kv_shape),
        "states": Buffer((states,), "int32", init=functools.partial(np.zeros, states, np.int32)),
    }
