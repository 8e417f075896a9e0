"""Products of warpgroups: tensor cores that read one operand from shared memory. Needs sm_90a, and no other target.

B lies in shared memory as tiles of 32 terms: n rows of 128 bytes, the eight 16-byte pieces of a row exchanged by the
row's number (`tile_index`), so that neither those who write a row nor the unit that reads eight of them meet a bank
conflict. A tile begins on a 1024-byte boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir
from numba import cuda, types, uint32
from numba.cuda.extending import intrinsic

from .asm import _FLOAT, _I32, _SHARED, _VOID, _asm, _pointer

TERMS = 32  # of a tile
WARPGROUP = 128  # threads
ROWS = 64  # of A
_I64 = ir.IntType(64)
_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
_STEP_BYTES, _TILE_STEPS = 32, 4  # of the 8 terms of one instruction


def descriptor_of(leading: int, stride: int, swizzle: int = 0) -> Any:
    """A function (shared, index) -> uint64 that describes a K-major tile which begins at `shared[index]`.

    `stride` is the distance from 8 rows to the next 8, `leading`, where there is no swizzle, from 4 terms of a row to
    the next 4; both count float32 elements. `swizzle` is 0, 32, 64 or 128 bytes: as many as a row holds together.
    """
    fixed = _MODES[swizzle] << 62 | (4 * stride >> 4) << 32 | (4 * leading >> 4) << 16

    @intrinsic
    def descriptor(typingctx, shared, index):
        signature = types.uint64(shared, index)

        def codegen(context, builder, signature, args):
            pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], space=_SHARED)
            start = builder.lshr(builder.and_(builder.ptrtoint(pointer, _I32), _I32(0x3FFFF)), _I32(4))
            return builder.or_(builder.zext(start, _I64), _I64(fixed))

        return signature, codegen

    return descriptor


tile_descriptor = descriptor_of(0, 8 * TERMS, 128)


@cuda.jit(device=True)
def tile_index(row, piece):
    """Where in a tile the four terms `4 * piece` .. + 3 of a row lie."""
    return uint32(row * uint32(TERMS) + (piece ^ row % uint32(8)) * uint32(4))


@dataclass(frozen=True)
class Product:
    """One instruction of a batch: total += A B over 8 terms.

    `left` and `step` number A's fragments and B's steps of 8 terms; both are of the high parts unless it says low.
    """

    total: int
    left: int
    step: int
    low_left: bool = False
    low_right: bool = False


def three_products(products: Sequence[Product]) -> tuple[Product, ...]:
    """Products of float32 as ones of TF32, low times high and high times low before high times high.

    Low times low is left out. In each of the three rounds the order is the given one: products of different totals
    that take turns wait less for each other.
    """
    low_left = (replace(product, low_left=True) for product in products)
    low_right = (replace(product, low_right=True) for product in products)
    return (*low_left, *low_right, *products)


def batch(n: int, products: Sequence[Product]) -> tuple[Any, Any]:
    """A function that starts `products`, to be done in that order, and one that waits for them.

    The first takes (totals, high, low, b_high, b_low): arrays of float32 in registers, and descriptors of B's first
    tile. It overwrites the n / 2 elements of each total; `high` and `low` hold 4 elements of each fragment of A. The
    second takes (totals), which are nobody's between the two. All threads of a warpgroup must call them, the first
    after `fence_products` where B was stored since. Thread t of it holds, with
    w = t // 32, g = t % 32 // 4, m = t % 4 and h = 16 w + g, the elements (row, term) and (row, column)
    A: (h, m), (h + 8, m), (h, m + 4), (h + 8, m + 4);
    totals, for each j < n / 8: (h, 8j + 2m), (h, 8j + 2m + 1), (h + 8, 8j + 2m), (h + 8, 8j + 2m + 1).

    A call anywhere in the kernel, such as that of an exact division, makes the
    compiler wait after every single product. Raises: ValueError for an n that the instruction does not have.
    """
    if n % 8 or not 8 <= n <= 256:
        raise ValueError(f"n is {n}; it must be a multiple of 8 up to 256")
    size, fragments = n // 2, 1 + max(product.left for product in products)
    results = size * (1 + max(product.total for product in products))
    steps = sorted({(product.low_right, product.step) for product in products})
    text = [
        f"{{ .reg .pred begin, add; .reg .b64 step<{len(steps)}>;",
        "setp.ne.b32 begin, 0, 0; setp.eq.b32 add, 0, 0;",
    ]
    for number, (low, step) in enumerate(steps):
        offset = step % _TILE_STEPS * _STEP_BYTES + step // _TILE_STEPS * 4 * n * TERMS
        text.append(f"add.s64 step{number}, ${results + 8 * fragments + low}, {offset >> 4};")
    text.append("wgmma.fence.sync.aligned;")
    begun: set[int] = set()
    for product in products:
        left = results + 4 * (product.left + fragments * product.low_left)
        text.append(
            f"wgmma.mma_async.sync.aligned.m64n{n}k8.f32.tf32.tf32 "
            f"{{{', '.join(f'${product.total * size + i}' for i in range(size))}}}, "
            f"{{{', '.join(f'${left + i}' for i in range(4))}}}, "
            f"step{steps.index((product.low_right, product.step))}, "
            f"{'add' if product.total in begun else 'begin'}, 1, 1;"
        )
        begun.add(product.total)
    text += ["wgmma.commit_group.sync.aligned;", "}"]
    constraints = ["=&f"] * results + ["r"] * (8 * fragments) + ["l", "l", "~{memory}"]

    structure = ir.LiteralStructType([_FLOAT] * results)

    def pointers(context, builder, kind, array, count):
        data = context.make_array(kind)(context, builder, array).data
        return [builder.gep(data, [_I32(i)], inbounds=True) for i in range(count)]

    def store(builder, places, done):
        for number, place in enumerate(places):
            builder.store(builder.extract_value(done, number), place)

    def start(typingctx, totals, high, low, b_high, b_low):
        signature = types.void(totals, high, low, types.uint64, types.uint64)

        def codegen(context, builder, signature, args):
            places = [pointers(context, builder, signature.args[i], args[i], 4 * fragments) for i in (1, 2)]
            left = [builder.bitcast(builder.load(place), _I32) for place in (*places[0], *places[1])]
            done = _asm(builder, "\n".join(text), ",".join(constraints), structure, [*left, *args[3:]])
            store(builder, pointers(context, builder, signature.args[0], args[0], results), done)
            return context.get_dummy_value()

        return signature, codegen

    def finish(typingctx, totals):
        signature = types.void(totals)

        def codegen(context, builder, signature, args):
            # the totals pass through the statement, so that nothing which uses them moves in front of it
            places = pointers(context, builder, signature.args[0], args[0], results)
            same = ",".join([*["=f"] * results, *map(str, range(results)), "~{memory}"])
            values = [builder.load(place) for place in places]
            store(builder, places, _asm(builder, "wgmma.wait_group.sync.aligned 0;", same, structure, values))
            return context.get_dummy_value()

        return signature, codegen

    name = f"n{n}_{results}_{len(products)}"
    start.__name__, finish.__name__ = f"start_{name}", f"finish_{name}"
    return intrinsic(start), intrinsic(finish)


@intrinsic
def fence_products(typingctx):
    """Products started by this thread see what it wrote to shared memory, and what a barrier let it know of."""

    def codegen(context, builder, signature, args):
        _asm(builder, "fence.proxy.async.shared::cta;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen
