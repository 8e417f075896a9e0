"""Scores and weighted sums on wgmma, for 64 rows of queries and a tile of keys a warpgroup (sm_90a alone).

Tiles lie in slabs of 64 dims as in `prompts.phases`, a swizzle of 128 bytes; fragments as in `tile`. Between a
product's statement and its wait, registers of either may not be touched: ptxas would wait after every single product.
So scores of a tile and the weighted sum of the one before are started by one statement.
"""

from typing import Any

from llvmlite import ir
from numba import types

from ...device.asm import _asm
from ..prompts.phases import SLAB_ROW, WgmmaShape, bytes_at
from ..tiles import FLOAT, I32, I64, VOID, floats, i32, op, words
from .tile import STEP

GROUP_ROWS = 64  # of a warpgroup
STEP_BYTES, SLAB_STEPS, SWIZZLE = 32, 4, 1 << 62  # a descriptor's mode: 128 bytes
EIGHT_ROWS = 8 * SLAB_ROW


def _descriptor(b: Any, address: Any, leading: int) -> Any:
    fixed = SWIZZLE | EIGHT_ROWS >> 4 << 32 | leading >> 4 << 16
    start = b.lshr(b.and_(address, i32(0x3FFFF)), i32(4))
    return b.or_(b.zext(start, I64), I64(fixed))


def _steps(name: str, operand: int, offsets: list[int]) -> str:
    declared = f".reg .b64 {name}<{len(offsets)}>;"
    return declared + "".join(f"add.s64 {name}{i}, ${operand}, {at >> 4};" for i, at in enumerate(offsets))


def _registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"${first + i}" for i in range(count)) + "}"


def _scores_text(shape: WgmmaShape, first: int, query: int, key: int) -> str:
    """Q K^T into the registers from `first` on, of the descriptors `query` and `key`."""
    steps = range(shape.hdim // STEP)
    slabs = [(step // SLAB_STEPS, step % SLAB_STEPS * STEP_BYTES) for step in steps]
    text = _steps("dq", query, [slab * GROUP_ROWS * SLAB_ROW + at for slab, at in slabs])
    text += _steps("dk", key, [slab * shape.tile_keys * SLAB_ROW + at for slab, at in slabs])
    kind, total = shape.element.ptx, _registers(first, shape.tile_keys // 2)
    products = (
        f"wgmma.mma_async.sync.aligned.m64n{shape.tile_keys}k16.f32.{kind}.{kind} "
        f"{total}, dq{step}, dk{step}, {'add' if step else 'new'}, 1, 1, 0, 0;"
        for step in steps
    )
    return text + "wgmma.fence.sync.aligned;" + "".join(products) + "wgmma.commit_group.sync.aligned;"


def _sums_text(shape: WgmmaShape, first: int, weights: int, value: int) -> str:
    """P V added to the registers from `first` on, of weights in registers and the descriptor `value`."""
    steps = range(shape.tile_keys // STEP)
    text = _steps("dv", value, [step * STEP * SLAB_ROW for step in steps])
    kind, total = shape.element.ptx, _registers(first, shape.hdim // 2)
    products = (
        f"wgmma.mma_async.sync.aligned.m64n{shape.hdim}k16.f32.{kind}.{kind} "
        f"{total}, {_registers(weights + 4 * step, 4)}, dv{step}, add, 1, 1, 1;"
        for step in steps
    )
    return text + "wgmma.fence.sync.aligned;" + "".join(products) + "wgmma.commit_group.sync.aligned;"


def _whole(text: str) -> str:
    return "{ .reg .pred new, add; setp.ne.b32 new, 0, 0; setp.eq.b32 add, 0, 0;" + text + "}"


def _run(b: Any, text: str, constraints: list[str], count: int, operands: list[Any]) -> list[Any]:
    made = _asm(b, text, ",".join([*constraints, "~{memory}"]), ir.LiteralStructType([FLOAT] * count), operands)
    return [b.extract_value(made, i) for i in range(count)]


def start_scores(shape: WgmmaShape) -> Any:
    """start(shared, query, key) -> scores, in fragments, nobody's before a wait. Indices of the two tiles."""
    count = shape.tile_keys // 2

    @op(floats(count))
    def start(b, shared, query, key):
        operands = [_descriptor(b, bytes_at(b, shared, index), 0) for index in (query, key)]
        return _run(b, _whole(_scores_text(shape, 0, count, count + 1)), ["=&f"] * count + ["l"] * 2, count, operands)

    return start


def _leading(shape: WgmmaShape) -> int:
    """From one slab of values to the next."""
    return SLAB_ROW * shape.tile_keys


def start_sums(shape: WgmmaShape) -> Any:
    """start(shared, weights, acc, value) -> acc plus weights times values, nobody's before a wait."""
    count, held = shape.hdim // 2, shape.tile_keys // 4

    @op(floats(count))
    def start(b, shared, weights, acc, value):
        text = _whole(_sums_text(shape, 0, 2 * count, 2 * count + held))
        constraints = ["=f"] * count + [str(i) for i in range(count)] + ["r"] * held + ["l"]
        described = _descriptor(b, bytes_at(b, shared, value), _leading(shape))
        return _run(b, text, constraints, count, [*acc, *weights, described])

    return start


def start_both(shape: WgmmaShape) -> Any:
    """start(shared, query, key, weights, acc, value) -> scores and sums, as two groups: scores are done first."""
    scores, sums, held = shape.tile_keys // 2, shape.hdim // 2, shape.tile_keys // 4

    @op(floats(scores + sums))
    def start(b, shared, query, key, weights, acc, value):
        at = scores + 2 * sums
        text = _scores_text(shape, 0, at + held, at + held + 1) + _sums_text(shape, scores, at, at + held + 2)
        constraints = ["=&f"] * scores + ["=f"] * sums + [str(scores + i) for i in range(sums)] + ["r"] * held
        operands = [_descriptor(b, bytes_at(b, shared, index), 0) for index in (query, key)]
        operands.append(_descriptor(b, bytes_at(b, shared, value), _leading(shape)))
        return _run(b, _whole(text), [*constraints, *["l"] * 3], scores + sums, [*acc, *weights, *operands])

    return start


def wait(count: int, pending: int) -> Any:
    """there(values) -> the same, when all but the last `pending` groups of products are done."""

    @op(floats(count))
    def there(b, values):
        same = ["=f"] * count + [str(i) for i in range(count)]
        return _run(b, f"wgmma.wait_group.sync.aligned {pending};", same, count, values)

    return there


def by_rows(count: int) -> Any:
    """ordered(scores): from fragments to row by row."""

    @op(floats(count))
    def ordered(b, scores):
        return [score for row in range(2) for i, score in enumerate(scores) if i >> 1 & 1 == row]

    return ordered


def pack(shape: WgmmaShape) -> Any:
    """packed(weights) -> A fragments of each 16 keys. Volatile: not before the wait for what read the last ones."""
    half = shape.tile_keys // 4
    text = f"cvt.rn.{shape.element.ptx}x2.f32 $0, $2, $1;"

    @op(words(half))
    def packed(b, weights):
        made = [_asm(b, text, "=r,f,f", I32, list(weights[i : i + 2])) for i in range(0, len(weights), 2)]
        rows = made[: half // 2], made[half // 2 :]
        return [rows[row][2 * step + i] for step in range(half // 4) for i in range(2) for row in range(2)]

    return packed


# --- barriers, copies, registers ----------------------------------------------------------------------


@op(types.void)
def init_barrier(b, shared, index, count):
    _asm(b, "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", VOID, [bytes_at(b, shared, index), count])


@op(types.void)
def arrive(b, shared, index):
    _asm(b, "mbarrier.arrive.shared::cta.b64 _, [$0];", "r,~{memory}", VOID, [bytes_at(b, shared, index)])


@op(types.void)
def expect(b, shared, index, count):
    """Arrive, and make the phase wait for as many bytes."""
    text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    _asm(b, text, "r,r,~{memory}", VOID, [bytes_at(b, shared, index), count])


@op(types.void)
def wait_barrier(b, shared, index, parity):
    text = (
        "{ .reg .pred done; $$wait${:uid}: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; "
        "@!done bra $$wait${:uid}; }"
    )
    _asm(b, text, "r,r,~{memory}", VOID, [bytes_at(b, shared, index), parity])


@op(types.void)
def fence_async(b):
    """Let the asynchronous proxy see what this thread wrote to shared memory."""
    _asm(b, "fence.proxy.async.shared::cta;", "~{memory}", VOID, [])


@op(types.void)
def open_map(b, tensor_map):
    """Let this thread use a tensor map that somebody wrote to global memory before the launch."""
    _asm(b, "fence.proxy.tensormap::generic.acquire.gpu [$0], 128;", "l,~{memory}", VOID, [tensor_map])


def copy_tile(shape: WgmmaShape) -> Any:
    """copy(shared, index, tensor_map, key, head, batch, barrier): a tile from that key on, zeros behind the last."""

    @op(types.void)
    def copy(b, shared, index, tensor_map, key, head, batch, barrier):
        target, counts = bytes_at(b, shared, index), bytes_at(b, shared, barrier)
        for slab in range(shape.slabs):
            text = (
                "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                f"[$0+{slab * SLAB_ROW * shape.tile_keys}], [$1, {{{64 * slab}, $2, $3, $4}}], [$5];"
            )
            _asm(b, text, "r,l,r,r,r,r,~{memory}", VOID, [target, tensor_map, key, head, batch, counts])

    return copy


def set_registers(how: str, count: int) -> Any:
    @op(types.void)
    def change(b):
        _asm(b, f"setmaxnreg.{how}.sync.aligned.u32 {count};", "~{memory}", VOID, [])

    return change
