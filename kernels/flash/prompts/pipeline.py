"""The pipeline of the kernels on wgmma: a producer fills stages with tiles of keys and values, consumers empty them.

Each stage has four mbarriers: keys full, keys empty, values full, values empty. A phase of a full one completes with
the copy's bytes; of an empty one, when a lane of each consumer warp has arrived.
"""

from collections import namedtuple
from typing import Any

from numba import cuda

from ...device.cint import cint
from ...device.wgmma import fence_products
from ..atoms.wgmma import GROUP_ROWS, arrive, copy_tile, expect, init_barrier, wait_barrier
from ..shapes import SLAB_ROW, PipelinedShape

REGISTERS = (24, 240)  # a thread, of the producer and of the consumers (setmaxnreg); both begin with 168

# Floats of shared memory where barriers and tiles of the first stage begin; the next stage's barriers are 2 further,
# its tiles `tile`. The queries of the next warpgroup are `group` further.
Pipeline = namedtuple(
    "Pipeline", "keys_full keys_empty values_full values_empty queries_full query keys values tile group"
)


def pipeline_of(shape: PipelinedShape) -> Pipeline:
    at, group = shape.layout, shape.slabs * GROUP_ROWS * SLAB_ROW // 4
    barriers = (at["barriers"] + 2 * shape.stages * i for i in range(5))
    return Pipeline._make([*barriers, at["query"], at["keys"], at["values"], shape.tile_bytes // 4, group])


def begin_barriers(shape: PipelinedShape, consumers: int, queries: int) -> Any:
    """begin(shared), by one thread: initialise the barriers, for `consumers` warps and `queries` arrivals of Q."""
    at, stages = pipeline_of(shape), shape.stages

    @cuda.jit(device=True, forceinline=True)
    def begin(shared):
        for number in range(stages):
            init_barrier(shared, at.keys_full + 2 * number, 1)
            init_barrier(shared, at.values_full + 2 * number, 1)
            init_barrier(shared, at.keys_empty + 2 * number, consumers)
            init_barrier(shared, at.values_empty + 2 * number, consumers)
        init_barrier(shared, at.queries_full, queries)
        fence_products()

    return begin


def next_stage(shape: PipelinedShape) -> Any:
    """following(stage, parity) -> stage and parity of the next tile; the parity flips when the stages wrap around."""
    stages = shape.stages

    @cuda.jit(device=True, forceinline=True)
    def following(stage, parity):
        after, parity_after = stage + 1, parity
        if after == stages:
            after, parity_after = cint(0), parity ^ 1
        return after, parity_after

    return following


def producer(shape: PipelinedShape) -> Any:
    """fill(shared, stage, parity, k_map, v_map, number, head, batch), by one thread: copy a tile to an empty stage."""
    at, keys, tile_bytes = pipeline_of(shape), shape.tile_keys, shape.tile_bytes
    copy = copy_tile(shape.slabs, keys)

    @cuda.jit(device=True, forceinline=True)
    def fill(shared, stage, parity, k_map, v_map, number, head, batch):
        wait_barrier(shared, at.keys_empty + 2 * stage, parity)
        expect(shared, at.keys_full + 2 * stage, tile_bytes)
        copy(shared, at.keys + stage * at.tile, k_map, number * keys, head, batch, at.keys_full + 2 * stage)
        wait_barrier(shared, at.values_empty + 2 * stage, parity)
        expect(shared, at.values_full + 2 * stage, tile_bytes)
        copy(shared, at.values + stage * at.tile, v_map, number * keys, head, batch, at.values_full + 2 * stage)

    return fill


@cuda.jit(device=True, forceinline=True)
def release(shared, barrier, lane):
    """Arrive at an `empty` barrier, one lane for each warp: the warp has read the stage."""
    if lane == 0:
        arrive(shared, barrier)
