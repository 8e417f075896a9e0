"""Warpgroup products (wgmma), which read shared memory through the asynchronous proxy, and the fence that they need.

A product is computed at once, warp by warp. Until the kernel has waited for it, its registers hold NaN. When the wait
completes, its tiles are recorded as read once more, so that an earlier overwrite of them is a race. Registers of A are
not watched.
"""

from collections.abc import Callable

import numpy as np

from ..memory.tensors import MAP_BYTES
from ..report import UnknownInstruction
from ..row import Mask, Row
from . import arithmetic as am
from .decoding import CONVERGENT, GROUP, MEMBER, Instruction, Step, opcode
from .transfers import SPACES, address_of
from .warps import fragment

F32, U32 = np.float32, np.uint32
WARPS, ROWS = 4, 16  # warps of a warpgroup, and rows of A for each warp
DEPTHS = {"tf32": 8, "f16": 16, "bf16": 16}  # terms of a product: 32 bytes
SHAPES = {kind: " ".join(f"m64n{n}k{depth}" for n in range(8, 257, 8)) for kind, depth in DEPTHS.items()}
PIECE = 16  # bytes that are always contiguous
PITCH = np.array((0, 128, 64, 32))  # bytes of a row, by the swizzle mode of the descriptor


def _fields(descriptors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """int64[descriptors, 1, 1] each: start, leading and stride offset, and the pitch of the swizzle."""
    bits = np.asarray(descriptors, np.uint64).astype(np.int64)[:, None, None]
    if (bits >> 49 & 7).any():
        raise UnknownInstruction("wgmma: a descriptor's base offset is not 0")
    start, leading, stride = ((bits >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    return start, leading, stride, PITCH[bits >> 62 & 3]


def tile_addresses(descriptors: np.ndarray, rows: int) -> np.ndarray:
    """int64[descriptors, rows, 2]: addresses in shared memory of the two 16-byte pieces of each row of a K-major tile.

    Without a swizzle, 8 rows of one piece are 128 contiguous bytes. The leading offset leads to the other piece, the
    stride offset to the next 8 rows. With a swizzle, rows are 32, 64 or 128 bytes apart, and the address bits from bit
    7 on are XORed into those from bit 4 on, enough of them to number the pieces of a row.

    Raises: UnknownInstruction for a base offset.
    """
    start, leading, stride, pitch = _fields(descriptors)
    row, piece = np.arange(rows)[:, None], np.arange(2)
    inside = np.where(pitch, row % 8 * pitch + piece * PIECE, row % 8 * PIECE + piece * leading)
    addresses = start + row // 8 * stride + inside
    return addresses ^ (addresses >> 7 << 4 & np.where(pitch, pitch - PIECE, 0))


def transposed_addresses(descriptors: np.ndarray, depth: int, columns: int) -> np.ndarray:
    """int64[descriptors, depth, columns / 8]: the 16-byte pieces of a tile of 2-byte elements whose columns are
    contiguous.

    A row of a term has as many columns as fit the swizzle's bytes, and 8 terms follow each other at that pitch. The
    stride offset leads to the next 8 terms, the leading offset to further columns.

    Raises: UnknownInstruction without a swizzle, or for a base offset.
    """
    start, leading, stride, pitch = _fields(descriptors)
    if not pitch.all():
        raise UnknownInstruction("wgmma: a transposed tile without a swizzle")
    term, first = np.arange(depth)[:, None], PIECE * np.arange(columns // 8)
    addresses = start + first // pitch * leading + term // 8 * stride + term % 8 * pitch + first % pitch
    return addresses ^ (addresses >> 7 << 4 & pitch - PIECE)


@opcode("wgmma", f"mma_async fence commit_group wait_group sync aligned {' '.join(SHAPES.values())}", ordered=True)
def _wgmma(d: Instruction) -> Step | None:
    """D = A B + D, or A B, summed in float64 and rounded once. A is K-major; B too or, with 16 bits, transposed."""
    d.kind = CONVERGENT
    if "fence" in d.flags:
        return None
    if "commit_group" in d.flags:
        return lambda row, mask: row.products.commit(np.any(row.active(mask), axis=1))
    if "wait_group" in d.flags:
        pending = int(d.operands[0], 0)

        def wait(row: Row, mask: Mask) -> None:
            row.products.wait(np.any(row.active(mask), axis=1), pending)

        return wait
    kind = d.types[-1] if d.types else ""
    if kind not in DEPTHS or d.types != ["f32", kind, kind] or "mma_async" not in d.flags:
        raise d.unknown("types")
    shape = d.flag(SHAPES[kind])
    if not shape:
        raise d.unknown("shape")
    columns, depth = int(shape[4:].partition("k")[0]), DEPTHS[kind]
    targets = [d.module.result(name, "f32") for name in d.vector(0)]
    registers = d.operands[1].startswith("{")
    a = [d.module.operand(name, "b32") for name in d.vector(1)] if registers else [d.source(1, "b64")]
    b = d.source(2, "b64")
    keep, negated = d.predicate(d.operands[3])
    signs = [d.module.constant_value(operand) for operand in d.operands[4:6]]
    swapped = [d.module.constant_value(operand) for operand in d.operands[6:]]
    if len(targets) != columns // 2 or len(a) != (4 if registers else 1):
        raise d.unknown("operands")
    if len(signs) != 2 or not set(signs) <= {1, -1}:
        raise d.unknown("scale")
    if len(swapped) != (0 if kind == "tf32" else 2 - registers) or not set(swapped) <= {0, 1} or swapped[:-1] == [1]:
        raise d.unknown("transposition")
    sign, transposed = 1 if signs[0] == signs[1] else -1, swapped[-1:] == [1]

    def left(row: Row, warps: np.ndarray) -> np.ndarray:
        if registers:
            return fragment(row, a, ROWS, kind)[warps]
        first = ROWS * (row.index % WARPS)
        return _tile(row, a[0], warps, kind, lambda given: tile_addresses(given, first + ROWS)[:, first:])

    def right(row: Row, warps: np.ndarray) -> np.ndarray:
        if transposed:
            tile = _tile(row, b, warps, kind, lambda given: transposed_addresses(given, depth, columns))
            return tile.reshape(-1, depth, columns)
        return _tile(row, b, warps, kind, lambda given: tile_addresses(given, columns)).swapaxes(1, 2)

    def step(row: Row, mask: Mask) -> None:
        warps = _whole_warps(row, mask)
        product = sign * (left(row, warps) @ right(row, warps))
        kept = row.lanes(keep).reshape(-1, 32)[warps] ^ negated
        for register, target in enumerate(targets):
            line, column = GROUP + 8 * (register >> 1 & 1), 8 * (register >> 2) + 2 * MEMBER + (register & 1)
            before = row.products.total(target, row.views[target], warps)
            total = product[:, line, column] + np.where(kept, before, F32(0))
            row.products.begin(target, row.views[target], warps, total)

    return step


def _whole_warps(row: Row, mask: Mask) -> np.ndarray:
    """The warps that execute a product; all their lanes must be active, and all warps of the warpgroup present."""
    active = row.active(mask)
    warps = np.flatnonzero(active.any(axis=1))
    if not active[warps].all() or row.index // WARPS * WARPS + WARPS > row.warps:
        row.unit.found("divergent_warp", "", "warpgroup", row.threads[32 * warps[0]], len(warps))
    return warps


def _tile(row: Row, slot: int, warps: np.ndarray, kind: str, places: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """float64[warps, rows, terms] from shared memory; its pieces are recorded as read by one lane after the other.

    places(descriptors) returns the addresses of all pieces, row by row.
    """
    descriptors = row.lanes(slot).reshape(-1, 32)[warps]
    if (descriptors != descriptors[:, :1]).any():
        row.unit.found("divergent_warp", "", "descriptor", row.threads[32 * warps[0]], len(warps))
    shaped = places(descriptors[:, 0])
    addresses = shaped.reshape(len(warps), -1)
    lanes = 32 * warps[:, None] + np.arange(addresses.shape[1]) % 32
    pieces = row.unit.load_for_products(row, lanes.reshape(-1), addresses.reshape(-1), PIECE)

    def again(done: np.ndarray) -> None:
        row.unit.read_until_now(row, lanes[done].reshape(-1), addresses[done].reshape(-1), PIECE)

    row.products.reading(warps, row.size // 32, again)
    return am.factors(pieces.view(U32), kind).reshape(*shaped.shape[:2], -1).astype(np.float64)


FENCES = "cta gl sys gpu cluster sc acq_rel acquire release proxy async alias mbarrier_init tensormap::generic"


@opcode("fence", f"{SPACES} {FENCES}", ordered=True)
def _fence(d: Instruction) -> Step | None:
    """`fence.proxy.async` publishes what is visible to the thread to products.

    `fence.proxy.tensormap` lets the thread use a tensor map in global memory. Other fences have no effect here.
    """
    if "tensormap::generic" in d.flags:
        address = address_of(d, d.operands[0])
        if "acquire" not in d.flags or d.module.constant_value(d.operands[1]) != MAP_BYTES:
            raise d.unknown("form")

        def of_map(row: Row, mask: Mask) -> None:
            lanes = row.indices(mask)
            row.fenced_maps.update(zip(lanes.tolist(), address(row)[lanes].tolist()))

        return of_map

    def products(row: Row, mask: Mask) -> None:
        row.unit.order.fence_proxy(row.threads[row.indices(mask)])

    return products if {"proxy", "async"} <= d.flags and "global" not in d.flags else None


@opcode("setmaxnreg", "inc dec sync aligned", ordered=True)
def _setmaxnreg(d: Instruction) -> Step | None:
    """Registers per thread from here on; `Batch` checks the total of a block at the end."""
    count, more = d.module.constant_value(d.operands[0]), "inc" in d.flags
    if count is None or count % 8 or not 24 <= count <= 256:
        raise d.unknown("count")
    if not d.module.source.entry_registers:
        raise d.unknown("in a kernel without .maxntid,")
    d.kind = CONVERGENT

    def step(row: Row, mask: Mask) -> None:
        warps = _whole_warps(row, mask)
        before = row.registers[warps]
        wrong = before > count if more else before < count
        if wrong.any():
            place = f"{before[wrong][0]} registers a thread before"
            row.unit.found("registers", "", place, row.threads[32 * warps[wrong][0]], int(wrong.sum()))
        row.registers[warps] = count

    return step
