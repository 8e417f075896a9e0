"""Scores and weighted sums on wgmma, for 64 rows of queries and a tile of keys a warpgroup (sm_90a alone).

Tiles are slabs of 64 dims as in `prompts.phases`, swizzled by 128 bytes; fragments are those of `tile`. Between a
product's statement and its wait no instruction may touch its registers: ptxas would wait after every single product.
So one statement starts the scores of a tile and the weighted sum of the tile before.
"""

from collections.abc import Sequence
from typing import Any

from numba import types

from ..dtype import HALF
from ..shapes import SLAB_DIMS, SLAB_ROW
from ..shapes import PipelinedShape as Shape
from ..tiles import FLOAT, I32, I64, VOID, floats, register_op, tuples, words
from .tile import STEP

GROUP_ROWS = 64  # of a warpgroup
STEP_BYTES, SLAB_STEPS, SWIZZLE = 32, 4, 1 << 62  # a descriptor's mode: 128 bytes
EIGHT_ROWS = 8 * SLAB_ROW


def _descriptor(b: Any, address: Any, leading: int) -> Any:
    fixed = SWIZZLE | EIGHT_ROWS >> 4 << 32 | leading >> 4 << 16
    start = (address & 0x3FFFF) >> 4
    return b.zext(start, I64) | fixed


def _steps(name: str, operand: int, offsets: list[int]) -> str:
    declared = f".reg .b64 {name}<{len(offsets)}>;"
    return declared + "".join(f"add.s64 {name}{i}, ${operand}, {at >> 4};" for i, at in enumerate(offsets))


def _registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"${first + i}" for i in range(count)) + "}"


def _products(kind: str, total: str, factors: Sequence[str], flags: str, how: str) -> str:
    """One group of products that adds up in `total`; how: whether its first product writes ("new") or adds ("add")."""
    hows = [how, *["add"] * (len(factors) - 1)]
    name = f"wgmma.mma_async.sync.aligned.{kind} {total}"
    products = (f"{name}, {both}, {each}, {flags};" for both, each in zip(factors, hows))
    return "wgmma.fence.sync.aligned;" + "".join(products) + "wgmma.commit_group.sync.aligned;"


def _scores_text(shape: Shape, query: int, key: int) -> str:
    """Q K^T into the first registers, of the descriptors `query` and `key`: the parts of both that `terms` names."""
    steps = shape.part_dims // STEP
    slabs = [(step // SLAB_STEPS, step % SLAB_STEPS * STEP_BYTES) for step in range(shape.parts * steps)]
    text = _steps("dq", query, [slab * GROUP_ROWS * SLAB_ROW + at for slab, at in slabs])
    text += _steps("dk", key, [slab * shape.tile_keys * SLAB_ROW + at for slab, at in slabs])
    factors = [f"dq{steps * i + step}, dk{steps * j + step}" for i, j in shape.terms for step in range(steps)]
    kind = f"m64n{shape.tile_keys}k16.f32.{shape.kind}.{shape.kind}"
    return text + _products(kind, _registers(0, shape.tile_keys // 2), factors, "1, 1, 0, 0", "new")


def _sums_text(shape: Shape, first: int, weights: int, value: int, half: int) -> str:
    """P V in the registers from `first` on, of weights in registers, part by part, and the descriptor `value`."""
    steps, keys = shape.tile_keys // STEP, shape.tile_keys
    part, begins = shape.tile_bytes // shape.parts, half * shape.sum_dims // SLAB_DIMS * keys * SLAB_ROW
    slabs = [begins + part * number + step * STEP * SLAB_ROW for number in range(shape.parts) for step in range(steps)]
    factors = [
        f"{_registers(weights + keys // 4 * i + 4 * step, 4)}, dv{steps * j + step}"
        for i, j in shape.terms for step in range(steps)
    ]  # fmt: skip
    kind = f"m64n{shape.sum_dims}k16.f32.{shape.kind}.{shape.kind}"
    total, how = _registers(first, shape.sum_dims // 2), "add" if shape.sums_stay else "new"
    return _steps("dv", value, slabs) + _products(kind, total, factors, "1, 1, 1", how)


def _start(b: Any, shape: Shape, shared: Any, factors: Any, sums: Any, half: int = 0) -> list[Any]:
    """Start Q K^T of the tiles `factors`, and P V of `sums` = (weights, acc, value), a group each, or one."""
    scores, made = len(factors) // 2 * shape.tile_keys // 2, shape.sum_dims // 2 * bool(sums)
    weights, acc, *values = sums or ([], [])
    if not shape.sums_stay:
        acc = []
    at = scores + made + len(acc)
    text = "{ .reg .pred new, add; setp.ne.b32 new, 0, 0; setp.eq.b32 add, 0, 0;"
    if factors:
        text += _scores_text(shape, at + len(weights), at + len(weights) + 1)
    if sums:
        text += _sums_text(shape, scores, at, at + len(weights) + len(factors), half)
    how = ["=&f"] * scores + ["=f" if acc else "=&f"] * made + [str(scores + i) for i in range(len(acc))]
    how += ["r"] * len(weights) + ["l"] * len([*factors, *values])
    leading = SLAB_ROW * shape.tile_keys  # from one slab of values to the next
    described = [_descriptor(b, b.at_float(shared, index), 0) for index in factors]
    described += [_descriptor(b, b.at_float(shared, index), leading) for index in values]
    return b.ptx(text + "}", ",".join([*how, "~{memory}"]), [FLOAT] * (scores + made), [*acc, *weights, *described])


@register_op(lambda shape: floats(shape.tile_keys // 2))
def start_scores(b, shared, query, key, *, shape):
    """Q K^T in fragments, undefined until wgmma.wait_group. `query` and `key`: floats where the two tiles begin."""
    return _start(b, shape, shared, (query, key), ())


@register_op(lambda shape: floats(shape.sum_dims // 2))
def start_sums(b, shared, weights, acc, value, *, shape, half=0):
    """P V, undefined until wgmma.wait_group; added to acc where `sums_stay`. half: which `sum_dims` of the values."""
    return _start(b, shape, shared, (), (weights, acc, value), half)


@register_op(lambda shape: tuples(shape.tile_keys // 2, shape.sum_dims // 2))
def start_both(b, shared, query, key, weights, acc, value, *, shape):
    """(Q K^T, P V), as two groups: the scores are complete first."""
    made = _start(b, shape, shared, (query, key), (weights, acc, value))
    return made[: shape.tile_keys // 2], made[shape.tile_keys // 2 :]


@register_op(lambda count: floats(count))
def wait(b, values, *, count, pending):
    """The same values, after wgmma.wait_group: all but the last `pending` groups of products are complete."""
    same = ",".join([*["=f"] * count, *map(str, range(count)), "~{memory}"])
    return b.ptx(f"wgmma.wait_group.sync.aligned {pending};", same, [FLOAT] * count, values)


@register_op(lambda scores, outputs: tuples(scores, outputs))
def wait_both(b, first, second, *, scores, outputs):
    """As `wait` for all groups, of what `start_both` returns."""
    same = ",".join([*["=f"] * (scores + outputs), *map(str, range(scores + outputs)), "~{memory}"])
    made = b.ptx("wgmma.wait_group.sync.aligned 0;", same, [FLOAT] * (scores + outputs), [*first, *second])
    return made[:scores], made[scores:]


@register_op(lambda count: floats(count))
def by_rows(b, scores, *, count):
    """Scores row by row, of scores in fragments."""
    return [score for row in range(2) for i, score in enumerate(scores) if (i >> 1) & 1 == row]


@register_op(lambda shape: words(shape.tile_keys // 4 * shape.parts))
def pack(b, weights, *, shape):
    """A fragments of each 16 keys, part by part; volatile, so that they stay after the wait for the products before."""
    half = shape.tile_keys // 4
    text = f"cvt.rn.{shape.kind}x2.f32 $0, $2, $1;"
    parts: list[list[Any]] = [[] for _ in range(shape.parts)]
    for i in range(0, len(weights), 2):
        rest = list(weights[i : i + 2])
        for number, part in enumerate(parts):
            if number:
                rest = [x - y for x, y in zip(rest, HALF.floats(b, parts[number - 1][-1:]))]
            part.append(b.ptx(text, "=r,f,f", I32, rest))
    fragments = [(step, i, row) for step in range(half // 4) for i in range(2) for row in range(2)]
    return [part[half // 2 * row + 2 * step + i] for part in parts for step, i, row in fragments]


# --- barriers, copies, registers ----------------------------------------------------------------------


@register_op(types.void)
def init_barrier(b, shared, index, count):
    b.ptx("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", VOID, [b.at_float(shared, index), count])


@register_op(types.void)
def arrive(b, shared, index):
    b.ptx("mbarrier.arrive.shared::cta.b64 _, [$0];", "r,~{memory}", VOID, [b.at_float(shared, index)])


@register_op(types.void)
def expect(b, shared, index, count):
    """Arrive, and make the phase expect `count` bytes."""
    text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    b.ptx(text, "r,r,~{memory}", VOID, [b.at_float(shared, index), count])


@register_op(types.void)
def wait_barrier(b, shared, index, parity):
    text = (
        "{ .reg .pred done; $$wait${:uid}: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; "
        "@!done bra $$wait${:uid}; }"
    )
    b.ptx(text, "r,r,~{memory}", VOID, [b.at_float(shared, index), parity])


@register_op(types.void)
def open_map(b, tensor_map):
    """Acquire a tensor map for this thread, which the host or a kernel wrote to global memory before the launch."""
    b.ptx("fence.proxy.tensormap::generic.acquire.gpu [$0], 128;", "l,~{memory}", VOID, [tensor_map])


@register_op(types.void)
def copy_tile(b, shared, index, tensor_map, row, head, batch, barrier, *, slabs, rows):
    """Copy `rows` rows from `row` on to each of `slabs` by TMA; zeros after the last row."""
    target, counts = b.at_float(shared, index), b.at_float(shared, barrier)
    for slab in range(slabs):
        text = (
            "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
            f"[$0+{slab * SLAB_ROW * rows}], [$1, {{{SLAB_DIMS * slab}, $2, $3, $4}}], [$5];"
        )
        b.ptx(text, "r,l,r,r,r,r,~{memory}", VOID, [target, tensor_map, row, head, batch, counts])


@register_op(types.void)
def set_registers(b, *, how, count):
    b.ptx(f"setmaxnreg.{how}.sync.aligned.u32 {count};", "~{memory}", VOID, [])
