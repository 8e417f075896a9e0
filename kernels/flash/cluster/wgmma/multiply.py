"""The products of the wgmma core: scores of a fragment of K, and a tile's part of the output."""

from typing import Any

from numba import cuda, float32

from ....device import FACTOR_BOUND, VALUE_BOUND, ld2, ld4, repeat, split_bounded
from ....device.wgmma import ROWS, TERMS, Product, batch, three_products, tile_descriptor
from ..shape import GROUP
from .copy import HALF, swizzle
from .shape import KEYS, Shape

# Two sums of 16 terms: of one product, or of two side by side.
LONG = [Product(step // 2, step, step) for step in (0, 2, 1, 3)]
WIDE = [Product(side, 2 * side + step, step) for step in (0, 1) for side in (0, 1)]


def scores_by_products(shape: Shape) -> tuple[Any, ...]:
    """The scores of a kernel: load_keys, a fragment of K to registers, split_keys, start and finish its products."""
    queries, layout, stride = shape.queries, shape.layout, shape.width
    query_at, keys_at, query_low = layout["query"], layout["keys"], queries * shape.width
    tile = queries * TERMS
    size = queries // 2  # accumulators per thread of one product
    start_scores, finish_scores = batch(queries, three_products(LONG))

    @cuda.jit(device=True)
    def load_keys(shared, buffer, x, group, key, member):
        """A fragment of 32 dims of the keys `key` and `key` + 1 (rows g and g + 8), four dims per lane of each half.

        Each element of K is loaded once, by one thread.
        """
        at = keys_at + buffer + key * stride + group * GROUP
        column = 4 * member
        for i in range(2):
            row = key + i
            low = ld4(shared, at + i * stride + swizzle(column, row))
            high = ld4(shared, at + i * stride + swizzle(column + HALF, row))
            j, k = 4 * i, 8 + 4 * i
            x[j], x[j + 1], x[j + 2], x[j + 3] = low.x, low.y, low.z, low.w
            x[k], x[k + 1], x[k + 2], x[k + 3] = high.x, high.y, high.z, high.w

    @cuda.jit(device=True)
    def split_keys(a, al, x):
        for half in range(2):
            for i in range(2):
                for term in range(4):
                    at = 8 * half + i + 2 * term
                    a[at], al[at] = split_bounded(x[8 * half + 4 * i + term], FACTOR_BOUND)

    @cuda.jit(device=True)
    def start(shared, new, a, al, group):
        """Start the products of 32 dims of two keys and of Q."""
        at = query_at + group * tile
        b, bl = tile_descriptor(shared, at), tile_descriptor(shared, at + query_low)
        start_scores(new, a, al, b, bl)

    @cuda.jit(device=True)
    def finish(scores, new):
        finish_scores(new)
        for i in range(size):
            scores[i] += new[i] + new[size + i]

    return load_keys, split_keys, start, finish


def rescaler(shape: Shape) -> Any:
    """A device function that rescales a panel of the output, and adds that of a tile's own accumulator."""
    queries, mmas_per_panel, per_tile_accumulator = shape.queries, shape.mmas_per_panel, shape.per_tile_accumulator
    size = shape.queries // 2
    rescale_at = shape.layout["rescale"]

    @cuda.jit(device=True)
    def rescale(acc, totals, first, shared, member):
        for j in range(queries // 8):
            x = ld4(shared, rescale_at + 16 * j + 4 * member)
            for side in range(mmas_per_panel):
                at = side * size + 4 * j
                i = first + at
                for e in range(4):
                    by = x.z if e % 2 else x.x
                    acc[i + e] = acc[i + e] * by + totals[at + e] if per_tile_accumulator else acc[i + e] * by

    return rescale


def output_by_products(shape: Shape) -> Any:
    """weigh(shared, output, thread, dims): a tile's part of the output, values by weights.

    Where a block has the SM to itself, the next fragments of V are loaded while products run.
    """
    queries, width, warpgroups, mmas_per_panel = shape.queries, shape.width, shape.warpgroups, shape.mmas_per_panel
    weights_at, values_at, rescale = shape.weights_at, shape.values_at, rescaler(shape)
    stride, tile, weights_low = width, queries * TERMS, queries * KEYS
    size = queries // 2  # accumulators per thread of one product
    panel_dims, per_tile_accumulator = mmas_per_panel * ROWS, shape.per_tile_accumulator
    tile_outputs = mmas_per_panel * size
    start_output, finish_output = batch(queries, three_products(LONG if mmas_per_panel == 1 else WIDE))
    keys_a_step = 2 * HALF // mmas_per_panel
    steps, prefetch = KEYS // keys_a_step, shape.blocks == 1  # prefetching takes registers

    @cuda.jit(device=True)
    def load_values(shared, buffer, a, al, column, step, member):
        """A split fragment of V: 16 keys and 4 dims per lane, or 32 keys and 2 dims."""
        key = step * keys_a_step + member
        at = values_at + buffer + key * stride + swizzle(column, member)
        for i in range(8 // mmas_per_panel):
            if mmas_per_panel == 2:
                x = ld4(shared, at + 4 * i * stride)
                a[2 * i], a[2 * i + 1], a[8 + 2 * i], a[9 + 2 * i] = x.x, x.y, x.z, x.w
            else:
                a[2 * i], a[2 * i + 1] = ld2(shared, at + 4 * i * stride)
        for i in range(16):
            a[i], al[i] = split_bounded(a[i], VALUE_BOUND)

    @cuda.jit(device=True)
    def finish_step(totals, new, at):
        finish_output(new)
        for i in range(size):
            if mmas_per_panel == 2:
                totals[at + i] += new[i]
                totals[at + size + i] += new[size + i]
            else:
                totals[at + i] += new[i] + new[size + i]

    @cuda.jit(device=True)
    def add_step(step, shared, buffer, totals, new, at, column, member):
        """Load values and start their product; with `prefetch`, load while the product before runs."""
        a = cuda.local.array(16, float32)
        al = cuda.local.array(16, float32)
        load_values(shared, buffer, a, al, column, step, member)
        if prefetch and step > 0:
            finish_step(totals, new, at)
        key = step * keys_a_step
        weights = weights_at + key // TERMS * tile + key % TERMS
        start_output(new, a, al, tile_descriptor(shared, weights), tile_descriptor(shared, weights + weights_low))
        if not prefetch or step == steps - 1:
            finish_step(totals, new, at)

    add_steps = repeat(add_step, steps)

    @cuda.jit(device=True)
    def weigh_panel(p, shared, acc, thread, buffer):
        """Rescale panel `p` of this warpgroup's output and add values times weights."""
        panel, member = thread.warpgroup + p * warpgroups, thread.member
        if width % (panel_dims * warpgroups) == 0 or panel < width // panel_dims:
            first = mmas_per_panel * p * size
            if per_tile_accumulator:
                totals, at = cuda.local.array(tile_outputs, float32), 0
                for i in range(tile_outputs):
                    totals[i] = float32(0.0)
            else:
                totals, at = acc, first
                rescale(acc, acc, first, shared, member)
            new = cuda.local.array(queries, float32)
            column = panel * panel_dims + thread.dim
            if prefetch:
                add_steps(shared, buffer, totals, new, at, column, member)
            else:  # no more registers than a step takes
                for step in range(steps):
                    add_step(step, shared, buffer, totals, new, at, column, member)
            if per_tile_accumulator:
                rescale(acc, totals, first, shared, member)

    weigh_panels = repeat(weigh_panel, shape.panels)

    @cuda.jit(device=True)
    def weigh(shared, output, thread, dims):
        weigh_panels(shared, output, thread, dims.buffer)

    return weigh
