"""Attention of prompts in float32 on wgmma, of parts that `split` made: three float16 products give a float32 one.

As in `wgmma`: one thread copies tiles, warpgroups start the scores of a tile and the weighted sum of the tile
before together. Tensor cores round sums toward zero, so a tile's weighted sum is one of its own, small products first,
and is added in float32. The scale 2^c of a tile of values is part of its weights: the row max is that of score + c, and
weights are at most 2^15. A block that meets a tile which is not split computes on TF32 tensor cores, as chunks do.
"""

import functools
from typing import Any

from numba import cuda, float32, types

from ...constants import FLOATS, INTS
from ...device.asm import _asm
from ...device.cint import cint
from ...version import Kernel
from ..args import types_of
from ..atoms import wgmma as atoms
from ..atoms.tile import STEP, key_offsets
from ..dtype import DTYPES
from ..mask import bounds_of, mask
from ..softmax import FULL_MASK, NO_KEY, lane_sum, masks_of
from ..tiles import (
    FLOAT,
    I32,
    VOID,
    constant,
    exp2,
    f32,
    floats,
    i32,
    maximum,
    op,
    part,
    shuffle,
    wait_for_launch,
    words,
)  # fmt: skip
from .float32_far import attend_far, load_scale, query_scale, store_rows, tiles_of_head
from .phases import SLAB_DIMS, SLAB_ROW, bytes_at, tile_of
from .split import HALF, TOP, UNSPLIT, Prompt32Shape

REGISTERS = (24, 240)  # of the warpgroup that copies and of others, where each thread begins with 168
WEIGHT_TOP = 15.0  # exponent of the largest weight: float16 goes up to 2^16
MOST_SCORE = 2.0**22  # of what scores may be: where the row max is rounded by 1 or more, weights overflow
LEAST_SCALE = 2.0**-120  # of scores: times -inf, a scale of 0 would be NaN


# --- products -----------------------------------------------------------------------------------------


def _scores_text(shape: Prompt32Shape, query: int, key: int) -> str:
    steps, keys = shape.dims // STEP, shape.tile_keys
    at = [(step // atoms.SLAB_STEPS, step % atoms.SLAB_STEPS * atoms.STEP_BYTES) for step in range(2 * steps)]
    text = atoms._steps("dq", query, [slab * atoms.GROUP_ROWS * SLAB_ROW + inside for slab, inside in at])
    text += atoms._steps("dk", key, [slab * keys * SLAB_ROW + inside for slab, inside in at])
    total, products = atoms._registers(0, keys // 2), ""
    for first, second in ((0, 1), (1, 0), (0, 0)):
        for step in range(steps):
            how = "add" if products else "new"
            products += (
                f"wgmma.mma_async.sync.aligned.m64n{keys}k16.f32.f16.f16 "
                f"{total}, dq{steps * first + step}, dk{steps * second + step}, {how}, 1, 1, 0, 0;"
            )
    return text + "wgmma.fence.sync.aligned;" + products + "wgmma.commit_group.sync.aligned;"


def _sums_text(shape: Prompt32Shape, first: int, weights: int, value: int, half: int) -> str:
    """Of all high parts of weights, then all low ones, from operand `weights` on."""
    steps, keys = shape.tile_keys // STEP, shape.tile_keys
    low_at, begins = shape.tile_bytes // 2, half * shape.sum_dims // SLAB_DIMS * keys * SLAB_ROW
    text = atoms._steps(
        "dv", value, [begins + low_at * part + step * STEP * SLAB_ROW for part in range(2) for step in range(steps)]
    )
    total, products = atoms._registers(first, shape.sum_dims // 2), ""
    for weight, part_of in ((0, 1), (1, 0), (0, 0)):
        for step in range(steps):
            how = "add" if products else "new"
            products += (
                f"wgmma.mma_async.sync.aligned.m64n{shape.sum_dims}k16.f32.f16.f16 "
                f"{total}, {atoms._registers(weights + keys // 4 * weight + 4 * step, 4)}, "
                f"dv{steps * part_of + step}, {how}, 1, 1, 1;"
            )
    return text + "wgmma.fence.sync.aligned;" + products + "wgmma.commit_group.sync.aligned;"


def start(shape: Prompt32Shape, scores: bool, sums: bool, half: int = 0) -> Any:
    """start(shared, query, key, weights, value): scores, then weights times values, nobody's before a wait.

    Two groups of products, or one of them; indices of the tiles in shared memory. `half`: which `sum_dims` of values.
    """
    held = shape.tile_keys // 2
    first, count = scores * held, scores * held + sums * shape.sum_dims // 2

    @op(floats(count))
    def started(b, shared, query, key, weights, value):
        operands = [atoms._descriptor(b, bytes_at(b, shared, index), 0) for index in (query, key)]
        operands.append(atoms._descriptor(b, bytes_at(b, shared, value), SLAB_ROW * shape.tile_keys))
        text = _scores_text(shape, count, count + 1) if scores else ""
        text += _sums_text(shape, first, count + 3, count + 2, half) if sums else ""
        constraints = ["=&f"] * count + ["l"] * 3 + ["r"] * (held * sums)
        return atoms._run(b, atoms._whole(text), constraints, count, [*operands, *weights[: held * sums]])

    return started


def pack(shape: Prompt32Shape) -> Any:
    """packed(weights) -> A fragments of high parts, and of low ones. Volatile, as `wgmma.pack`."""
    held = shape.tile_keys // 4

    @op(words(2 * held))
    def packed(b, weights):
        parts: list[list[Any]] = [[], []]
        for i in range(0, len(weights), 2):
            pair = list(weights[i : i + 2])
            high = _asm(b, "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", I32, pair)
            rest = [b.fsub(x, y) for x, y in zip(pair, HALF.floats(b, [high]))]
            parts[0].append(high)
            parts[1].append(_asm(b, "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", I32, rest))
        made = []
        for each in parts:
            rows = each[: held // 2], each[held // 2 :]
            made += [rows[row][2 * step + i] for step in range(held // 4) for i in range(2) for row in range(2)]
        return made

    return packed


def add_sums(count: int) -> Any:
    @op(floats(count))
    def added(b, acc, factors, sums):
        return [b.fma(x, factors[i >> 1 & 1], y) for i, (x, y) in enumerate(zip(acc, sums))]

    return added


def join(shape: Prompt32Shape) -> Any:
    """joined(first, second) -> sums of all dims: of the first `sum_dims`, and of others where there are any."""

    @op(floats(shape.dims // 2))
    def joined(b, first, second):
        return [*first, *second][: shape.dims // 2]

    return joined


def softmax(each: int) -> Any:
    """weighed(scores, row_max, row_sum, own, k_scale, v_scale) -> weights, row sums, factors, row max: one tuple.

    As `softmax.step` for two rows, whose scales are `own`. Weights have the scale of values, and 2^WEIGHT_TOP.
    """

    @op(floats(2 * each + 6))
    def weighed(b, scores, row_max, row_sum, own, k_scale, v_scale):
        exponent = b.sitofp(b.sub(b.lshr(b.bitcast(v_scale, I32), i32(23)), i32(127)), FLOAT)
        less = b.bitcast(b.sub(i32(254 << 23), b.bitcast(v_scale, I32)), FLOAT)  # 1 / v_scale, a power of two
        weights, sums, factors, tops = [], [], [], []
        for row in range(2):
            scale = maximum(b, b.fmul(own[row], k_scale), f32(LEAST_SCALE))
            of_row = scores[each * row : each * (row + 1)]
            parts = of_row[:4]
            for i, score in enumerate(of_row[4:]):
                parts[i % 4] = maximum(b, parts[i % 4], score)
            top = maximum(b, maximum(b, parts[0], parts[1]), maximum(b, parts[2], parts[3]))
            for lanes in masks_of(0, 2):
                top = maximum(b, top, shuffle(b, "bfly", top, lanes))
            tops.append(maximum(b, row_max[row], b.fma(top, scale, exponent)))
            shift = b.fsub(b.fadd(exponent, f32(WEIGHT_TOP)), tops[row])
            made = [exp2(b, b.fma(score, scale, shift)) for score in of_row]
            factors.append(exp2(b, b.fsub(row_max[row], tops[row])))
            parts = made[:2]
            for i, weight in enumerate(made[2:]):
                parts[i % 2] = b.fadd(parts[i % 2], weight)
            sums.append(b.fma(b.fadd(*parts), less, b.fmul(row_sum[row], factors[row])))
            weights += made
        return [*weights, *sums, *factors, *tops]

    return weighed


# --- copies, scales, output ---------------------------------------------------------------------------


def copy_queries(shape: Prompt32Shape) -> Any:
    """copy(shared, index, tensor_map, row, head, batch, barrier): 64 rows for one warpgroup."""
    side = SLAB_ROW * atoms.GROUP_ROWS

    @op(types.void)
    def copy(b, shared, index, tensor_map, row, head, batch, barrier):
        target, counts = bytes_at(b, shared, index), bytes_at(b, shared, barrier)
        for slab in range(shape.slabs):
            text = (
                "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                f"[$0+{slab * side}], [$1, {{{SLAB_DIMS * slab}, $2, $3, $4}}], [$5];"
            )
            _asm(b, text, "r,l,r,r,r,r,~{memory}", VOID, [target, tensor_map, row, head, batch, counts])

    return copy


@op(floats(2))
def warp_tops(b, x):
    """The largest of a warp, of each of two."""
    made = list(x)
    for lanes in masks_of(0, 5):
        made = [maximum(b, value, shuffle(b, "bfly", value, lanes)) for value in made]
    return made


def greatest_score(shape: Prompt32Shape) -> Any:
    """greatest(shared, tid, sizes, scales, batch, head, tile, tiles, k_scales): a bound of scores of the block's tile.

    Infinite where one of its tiles is not split. It has the block's first barrier.
    """
    at, threads, rows, q_scale = shape.layout["tops"], shape.threads, shape.rows, query_scale(shape)
    tiles_of, most = tiles_of_head(shape), float32(2.0 ** (2 * TOP + 2) * shape.dims)

    @cuda.jit(device=True, forceinline=True)
    def greatest(shared, tid, sizes, scales, batch, head, tile, tiles, k_scales):
        v_scales, number = k_scales + sizes.kv_heads * tiles_of(sizes), tid
        k_top, q_top = float32(0.0), float32(0.0)
        while number < tiles:
            v_scale = load_scale(scales, v_scales + number)
            k_top = max(k_top, load_scale(scales, k_scales + number), v_scale if v_scale == UNSPLIT else float32(0.0))
            number += threads
        if tid < rows:
            q_top = q_scale(scales, sizes, batch, head, tile * rows + tid)
        k_top, q_top = warp_tops((k_top, q_top))
        if tid & 31 == 0:
            shared[at + 2 * (tid >> 5)], shared[at + 2 * (tid >> 5) + 1] = k_top, q_top
        cuda.syncthreads()
        for warp in range(threads // 32):
            k_top, q_top = max(k_top, shared[at + 2 * warp]), max(q_top, shared[at + 2 * warp + 1])
        return q_top * k_top * sizes.scale * most

    return greatest


# --- the kernel ---------------------------------------------------------------------------------------


class _Places:
    """Indices of what lies in shared memory."""

    def __init__(self, shape: Prompt32Shape) -> None:
        at, apart = shape.layout, 2 * shape.stages
        self.query, self.keys, self.values = at["query"], at["keys"], at["values"]
        self.barriers = tuple(at["barriers"] + apart * i for i in range(4))  # keys full, empty; values
        self.queries_full, self.tile = at["barriers"] + 4 * apart, shape.tile_bytes // 4
        self.group = shape.slabs * atoms.GROUP_ROWS * SLAB_ROW // 4


def copier(shape: Prompt32Shape) -> Any:
    """copy_all(shared, q_map, k_map, v_map, tile, tiles, head, batch), by one thread."""
    at, keys, stages, tile_bytes = _Places(shape), shape.tile_keys, shape.stages, shape.tile_bytes
    (keys_full, keys_empty, values_full, values_empty), queries_full = at.barriers, at.queries_full
    query, keys_at, values_at, tile_floats, group_floats = at.query, at.keys, at.values, at.tile, at.group
    copy, copy_q = atoms.copy_tile(shape), copy_queries(shape)  # type: ignore[arg-type]
    expect, wait, open_map = atoms.expect, atoms.wait_barrier, atoms.open_map
    rows, groups, query_bytes = shape.rows, shape.groups, shape.groups * at.group * 4

    @cuda.jit(device=True, forceinline=True)
    def copy_all(shared, q_map, k_map, v_map, tile, tiles, head, batch):
        open_map(q_map)
        open_map(k_map)
        open_map(v_map)
        turn, parity, number = cint(0), cint(1), cint(0)  # the parity of the phase before the first
        expect(shared, queries_full, query_bytes)
        for group in range(groups):
            row = tile * rows + 64 * group
            copy_q(shared, query + group * group_floats, q_map, row, head, batch, queries_full)
        while number < tiles:
            full, room = keys_full + 2 * turn, turn * tile_floats
            wait(shared, keys_empty + 2 * turn, parity)
            expect(shared, full, tile_bytes)
            copy(shared, keys_at + room, k_map, number * keys, head, batch, full)
            full = values_full + 2 * turn
            wait(shared, values_empty + 2 * turn, parity)
            expect(shared, full, tile_bytes)
            copy(shared, values_at + room, v_map, number * keys, head, batch, full)
            turn += 1
            if turn == stages:
                turn = cint(0)
                parity ^= 1
            number += 1

    return copy_all


def multiplier(shape: Prompt32Shape) -> Any:
    """multiply(shared, tid, queries, scales, k_scales, v_scales, tiles, seen, own) -> (sums, row sums) of two rows."""
    at, keys, stages = _Places(shape), shape.tile_keys, shape.stages
    (keys_full, keys_empty, values_full, values_empty), queries_full = at.barriers, at.queries_full
    keys_at, values_at, tile_floats = at.keys, at.values, at.tile
    held, sums, wide = keys // 2, shape.sum_dims // 2, shape.dims > shape.sum_dims
    second, all_there, joined = start(shape, False, True, int(wide)), atoms.wait(held + sums, 0), join(shape)
    first, both, last = (start(shape, *which) for which in ((True, False), (True, True), (False, True)))
    scores_of, sums_of = part(0, held), part(held, sums)
    first_there, scores_there, sums_there = atoms.wait(held, 0), atoms.wait(held, 1), atoms.wait(sums, 0)
    ordered, packed, add, weighed = atoms.by_rows(held), pack(shape), add_sums(sums), softmax(held // 2)
    weights_of, row_sums_of, factors_of, tops_of = part(0, held), part(held, 2), part(held + 2, 2), part(held + 4, 2)
    masked = mask(shape, 2, key_offsets(keys))
    zero_acc, fresh, zero, sum_rows = constant(sums, 0.0), constant(2, NO_KEY), constant(2, 0.0), lane_sum(2, (1, 2))
    arrive, wait = atoms.arrive, atoms.wait_barrier

    @cuda.jit(device=True, forceinline=True)
    def seen_scores(scores, key, lane, seen):
        made = ordered(scores)
        if cuda.any_sync(FULL_MASK, (key + keys > seen[0][0]) or (key + keys > seen[1][0])):
            made = masked(made, key + 2 * (lane & 3), seen)
        return made

    @cuda.jit(device=True, forceinline=True)
    def multiply(shared, tid, queries, scales, k_scales, v_scales, tiles, seen, own):
        turn, parity, number, lane = cint(0), cint(0), cint(1), tid & 31
        k_scale, v_scale = load_scale(scales, k_scales), load_scale(scales, v_scales)
        wait(shared, queries_full, 0)
        wait(shared, keys_full, 0)
        scores = first_there(first(shared, queries, keys_at, zero(), 0))
        if lane == 0:
            arrive(shared, keys_empty)
        made = weighed(seen_scores(scores, cint(0), lane, seen), fresh(), zero(), own, k_scale, v_scale)
        acc, more, p = zero_acc(), zero_acc(), packed(weights_of(made))
        while number < tiles:
            after, parity_after = turn + 1, parity
            if after == stages:
                after, parity_after = cint(0), parity ^ 1
            k_scale, v_scale = load_scale(scales, k_scales + number), load_scale(scales, v_scales + number)
            wait(shared, values_full + 2 * turn, parity)
            wait(shared, keys_full + 2 * after, parity_after)
            value, factors = values_at + turn * tile_floats, factors_of(made)
            started = both(shared, queries, keys_at + after * tile_floats, p, value)
            if wide:
                started = all_there(started)
                scores, acc = scores_of(started), add(acc, factors, sums_of(started))
                product = second(shared, 0, 0, p, value)
            else:
                scores, product = scores_there(scores_of(started)), sums_of(started)
            if lane == 0:
                arrive(shared, keys_empty + 2 * after)
            scores = seen_scores(scores, number * keys, lane, seen)
            made = weighed(scores, tops_of(made), row_sums_of(made), own, k_scale, v_scale)
            product = sums_there(product)
            if lane == 0:
                arrive(shared, values_empty + 2 * turn)
            p = packed(weights_of(made))
            if wide:
                more = add(more, factors, product)
            else:
                acc = add(acc, factors, product)
            turn, parity = after, parity_after
            number += 1
        wait(shared, values_full + 2 * turn, parity)
        value, factors = values_at + turn * tile_floats, factors_of(made)
        acc = add(acc, factors, sums_there(last(shared, 0, 0, p, value)))
        if wide:
            more = add(more, factors, sums_there(second(shared, 0, 0, p, value)))
        return joined(acc, more), sum_rows(row_sums_of(made))

    return multiply


def build(shape: Prompt32Shape) -> Any:
    at, keys, stages, groups, rows = _Places(shape), shape.tile_keys, shape.stages, shape.groups, shape.rows
    keys_full, keys_empty, values_full, values_empty = at.barriers
    queries_full, query, group_floats, waits = at.queries_full, at.query, at.group, 4 * groups
    give, take = atoms.set_registers("dec", REGISTERS[0]), atoms.set_registers("inc", REGISTERS[1])
    init, fence, block, write = atoms.init_barrier, atoms.fence_async, tile_of(shape.rows), store_rows(shape)
    bounds, q_scale, greatest = bounds_of(shape), query_scale(shape), greatest_score(shape)
    tiles_of, most_score = tiles_of_head(shape), float32(MOST_SCORE)
    copy_all, multiply, attend = copier(shape), multiplier(shape), attend_far(shape)

    def kernel(tensors, sizes, rotation, workspace, scales, q_parts, k_parts, v_parts, q_map, k_map, v_map):
        shared = cuda.shared.array(0, float32, 1024)
        tid = cint(cuda.threadIdx.x)
        batch, head, tile, all_keys, end, first_query = block(sizes)
        tiles = (end + keys - 1) // keys
        k_scales = batch * sizes.kv_heads * (sizes.group + 2) + sizes.kv_heads * sizes.group + head
        k_scales = k_scales * tiles_of(sizes)
        if tid == 0:
            for number in range(stages):
                init(shared, keys_full + 2 * number, 1)
                init(shared, values_full + 2 * number, 1)
                init(shared, keys_empty + 2 * number, waits)
                init(shared, values_empty + 2 * number, waits)
            init(shared, queries_full, 1)
            fence()
        wait_for_launch()
        if not greatest(shared, tid, sizes, scales, batch, head, tile, tiles, k_scales) <= most_score:
            attend(shared, tid, tensors, sizes, rotation, scales, q_parts, k_parts, v_parts, batch, head, tile, tiles,
                   all_keys, first_query, k_scales)  # fmt: skip
        elif tid < 128:
            if groups > 1:
                give()
            if tid == 0:
                copy_all(shared, q_map, k_map, v_map, tile, tiles, head, batch)
        else:
            if groups > 1:
                take()
            lane, queries = tid & 31, query + ((tid >> 7) - 1) * group_floats
            row = tile * rows + ((tid >> 5) - 4) * 16 + (lane >> 2)
            seen = (bounds(row, all_keys, first_query, batch, head, sizes, rotation),
                    bounds(row + 8, all_keys, first_query, batch, head, sizes, rotation))  # fmt: skip
            own = (sizes.scale * q_scale(scales, sizes, batch, head, row),
                   sizes.scale * q_scale(scales, sizes, batch, head, row + 8))  # fmt: skip
            v_scales = k_scales + sizes.kv_heads * tiles_of(sizes)
            acc, row_sum = multiply(shared, tid, queries, scales, k_scales, v_scales, tiles, seen, own)
            write(tensors, sizes, batch, head, row, lane, acc, row_sum)

    return kernel


@functools.cache
def prompt32_kernel(shape: Prompt32Shape) -> Kernel:
    """The kernel of a shape, with the grid of `phases.tile_of`; its last arguments are maps of the three parts."""
    made = build(shape)
    made.__name__ = made.__qualname__ = shape.name
    signature = (*types_of(DTYPES["float32"]), *(FLOATS,) * 4, *(INTS,) * 3)
    return Kernel(made, signature, shape.threads, min_blocks=1, architecture="sm_90a")
