"""Matrix products of a warpgroup (wgmma), which read operand B from shared memory. They need sm_90a and no other
target.

B is in shared memory as K-major tiles of 32 terms, each a row of 128 bytes for every column. The eight 16-byte pieces
of a row are swizzled by the row's number (`tile_index`), so that neither a write of rows nor a read of eight rows has a
bank conflict. A tile is aligned to 1024 bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir
from numba import cuda, types, uint32

from .asm import FLOAT, I32, I64, asm, device_op, shared_address, statement

TERMS = 32  # of a tile
WARPGROUP = 128  # threads
ROWS = 64  # of A
_STEP_BYTES, _TILE_STEPS = 32, 4  # bytes of the 8 terms of one instruction, and instructions that cover a tile
_DESCRIPTOR = 1 << 62 | (4 * 8 * TERMS >> 4) << 32  # swizzle mode of 128 bytes, and the distance of 8 rows to the next


@device_op(types.uint64)
def tile_descriptor(b, shared, index):
    """The matrix descriptor of a tile that starts at `shared[index]`."""
    start = b.lshr(b.and_(shared_address(b, shared, index), I32(0x3FFFF)), I32(4))
    return b.or_(b.zext(start, I64), I64(_DESCRIPTOR))


@cuda.jit(device=True)
def tile_index(row, piece):
    """Index in a swizzled tile of the four terms that start at `4 * piece` of a row."""
    return uint32(row * uint32(TERMS) + (piece ^ row % uint32(8)) * uint32(4))


@dataclass(frozen=True)
class Product:
    """One wgmma instruction of a batch: total += A B over 8 terms.

    `left` numbers the fragment of A and `step` the step of 8 terms of B. Both refer to the high parts unless marked
    low.
    """

    total: int
    left: int
    step: int
    low_left: bool = False
    low_right: bool = False


def three_products(products: Sequence[Product]) -> tuple[Product, ...]:
    """Split each float32 product into three TF32 products: low high, then high low, then high high.

    Low times low is left out. Within each of the three rounds the products keep the given order, so that products of
    different totals alternate and wait less for each other.
    """
    low_left = (replace(product, low_left=True) for product in products)
    low_right = (replace(product, low_right=True) for product in products)
    return (*low_left, *low_right, *products)


def batch(n: int, products: Sequence[Product]) -> tuple[Any, Any]:
    """A function that starts `products` in the given order, and one that waits for them.

    The first takes (totals, high, low, b_high, b_low): arrays of float32 in registers, and descriptors of B's first
    tile. It updates the n / 2 elements of each total; `high` and `low` hold 4 elements of each fragment of A. The
    second takes (totals), which must not be accessed between the two. All threads of a warpgroup must call both, and
    must call `fence_products` before the first if B was written since the last batch.

    With w = t // 32, g = t % 32 // 4, m = t % 4 and h = 16 w + g, thread t of the warpgroup holds the elements

      A (row, term): (h, m), (h + 8, m), (h, m + 4), (h + 8, m + 4);
      totals (row, column), for each j < n / 8:
      (h, 8j + 2m), (h, 8j + 2m + 1), (h + 8, 8j + 2m), (h + 8, 8j + 2m + 1).

    A function call anywhere in the kernel, such as that of an exact division, makes the compiler serialise the
    products.

    Raises: ValueError for an n that the instruction does not have.
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

    structure = ir.LiteralStructType([FLOAT] * results)

    def pointers(b, array, count):
        return [b.gep(array, [I32(i)], inbounds=True) for i in range(count)]

    def store(b, places, done):
        for number, place in enumerate(places):
            b.store(b.extract_value(done, number), place)

    def start(b, totals, high, low, b_high, b_low):
        parts = [*pointers(b, high, 4 * fragments), *pointers(b, low, 4 * fragments)]
        left = [b.bitcast(b.load(place), I32) for place in parts]
        done = asm(b, "\n".join(text), ",".join(constraints), structure, [*left, b_high, b_low])
        store(b, pointers(b, totals, results), done)

    def finish(b, totals):
        # the totals are operands of the statement, so that no use of them moves before it
        places = pointers(b, totals, results)
        same = ",".join([*["=f"] * results, *map(str, range(results)), "~{memory}"])
        values = [b.load(place) for place in places]
        store(b, places, asm(b, "wgmma.wait_group.sync.aligned 0;", same, structure, values))

    name = f"n{n}_{results}_{len(products)}"
    start.__name__, finish.__name__ = f"start_{name}", f"finish_{name}"
    return device_op(types.void, None, None, None, types.uint64, types.uint64)(start), device_op(types.void)(finish)


# Proxy fence: later products see this thread's writes to shared memory, and writes that a barrier made visible to it.
fence_products = statement("fence.proxy.async.shared::cta;")
