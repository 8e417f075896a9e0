"""Products of warpgroups (wgmma), which read shared memory through the asynchronous proxy, and the fence it needs.

A product is done at once, warp by warp, but until the kernel has waited for it its registers hold NaN. What else
happens to its tiles and to A before is not watched.
"""

from __future__ import annotations

import numpy as np

from ..memory.lanes import Mask
from ..report import UnknownInstruction
from ..row import Row
from .decoding import CONVERGENT, LANES, U32_TYPE, Decoding, Step, opcode
from .transfers import SPACES

F32, U32 = np.float32, np.uint32
WARPS, ROWS = 4, 16  # of a warpgroup, and of A that each of its warps multiplies
SHAPES = " ".join(f"m64n{columns}k8" for columns in range(8, 257, 8))
DEPTH, PIECE = 8, 16  # terms of a product; bytes that always lie together
PITCH = np.array((0, 128, 64, 32))  # bytes of a row, by a descriptor's swizzle mode
_GROUP, _MEMBER = LANES >> 2, LANES & 3


def tile_addresses(descriptors: np.ndarray, rows: int) -> np.ndarray:
    """int64[descriptors, rows, 2]: where the two 16-byte pieces of each row of a K-major tile lie in shared memory.

    Without a swizzle, 8 rows of one piece are 128 contiguous bytes; the leading offset leads to the other piece, the
    stride offset to the next 8 rows. With one, rows lie 32, 64 or 128 bytes apart, and the bits of an address from
    the seventh on are XORed into those from the fourth on, as many as number the pieces of a row.

    Raises: UnknownInstruction for a base offset.
    """
    bits = np.asarray(descriptors, np.uint64).astype(np.int64)[:, None, None]
    if (bits >> 49 & 7).any():
        raise UnknownInstruction("wgmma: a descriptor's base offset is not 0")
    start, leading, stride = ((bits >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    pitch = PITCH[bits >> 62 & 3]
    row, piece = np.arange(rows)[:, None], np.arange(2)
    inside = np.where(pitch, row % 8 * pitch + piece * PIECE, row % 8 * PIECE + piece * leading)
    addresses = start + row // 8 * stride + inside
    return addresses ^ (addresses >> 7 << 4 & np.where(pitch, pitch - PIECE, 0))


@opcode("wgmma", f"mma_async fence commit_group wait_group sync aligned {SHAPES}")
def _wgmma(d: Decoding) -> Step | None:
    """D = A B + D, or A B, for K-major A and B of TF32; products summed in float64, rounded once."""
    d.kind = CONVERGENT
    if "fence" in d.flags:
        return None
    if "commit_group" in d.flags:
        return lambda row, mask: row.products.commit(_active(row, mask))
    if "wait_group" in d.flags:
        if int(d.operands[0], 0):
            raise d.unknown("number of groups left")
        return lambda row, mask: row.products.wait(_active(row, mask))
    if d.types != ["f32", "tf32", "tf32"] or "mma_async" not in d.flags:
        raise d.unknown("types")
    index, columns = d.index, int(d.flag(SHAPES)[4:-2])
    targets = [d.module.result(name, "f32") for name in d.vector(0)]
    fragment = d.operands[1].startswith("{")
    a = [d.module.operand(name, U32_TYPE) for name in d.vector(1)] if fragment else [d.source(1, "b64")]
    b = d.source(2, "b64")
    keep, negated = d.predicate(d.operands[3])
    signs = [d.module.constant_value(operand) for operand in d.operands[4:]]
    if len(targets) != columns // 2 or len(a) != (4 if fragment else 1):
        raise d.unknown("operands")
    if len(signs) != 2 or not set(signs) <= {1, -1}:
        raise d.unknown("scale")
    sign = 1 if signs[0] == signs[1] else -1

    def left(row: Row, warps: np.ndarray) -> np.ndarray:
        if not fragment:
            return _tile(row, a[0], warps, ROWS, ROWS * (row.index % WARPS))
        value = np.zeros((len(warps), ROWS, DEPTH))
        for register, slot in enumerate(a):
            bits = row.lanes(slot).reshape(-1, 32)[warps]
            value[:, _GROUP + 8 * (register & 1), _MEMBER + 4 * (register >> 1)] = _tf32(bits)
        return value

    def step(row: Row, mask: Mask) -> None:
        row.unit.begin(index)
        warps = _whole_warps(row, mask)
        product = sign * (left(row, warps) @ _tile(row, b, warps, columns, 0).swapaxes(1, 2))
        kept = row.lanes(keep).reshape(-1, 32)[warps] ^ negated
        for register, target in enumerate(targets):
            line, column = _GROUP + 8 * (register >> 1 & 1), 8 * (register >> 2) + 2 * _MEMBER + (register & 1)
            before = row.products.total(target, row.views[target], warps)
            total = product[:, line, column] + np.where(kept, before, F32(0))
            row.products.begin(target, row.views[target], warps, total)

    return step


def _active(row: Row, mask: Mask) -> np.ndarray:
    return np.ones(row.size // 32, bool) if mask is True else mask.reshape(-1, 32).any(axis=1)


def _tf32(bits: np.ndarray) -> np.ndarray:
    return (bits & U32(0xFFFFE000)).view(F32)


def _whole_warps(row: Row, mask: Mask) -> np.ndarray:
    """The warps that execute a product; all lanes must, and all warps of the warpgroup must be there."""
    active = np.ones((row.size // 32, 32), bool) if mask is True else mask.reshape(-1, 32)
    warps = np.flatnonzero(active.any(axis=1))
    if not active[warps].all() or row.index // WARPS * WARPS + WARPS > row.warps:
        row.unit.found("divergent_warp", "", "warpgroup", row.threads[32 * warps[0]], len(warps))
    return warps


def _tile(row: Row, slot: int, warps: np.ndarray, rows: int, first_row: int) -> np.ndarray:
    """float32[warps, rows, 8] from shared memory; its pieces count as read by one lane after the other."""
    descriptors = row.lanes(slot).reshape(-1, 32)[warps]
    if (descriptors != descriptors[:, :1]).any():
        row.unit.found("divergent_warp", "", "descriptor", row.threads[32 * warps[0]], len(warps))
    addresses = tile_addresses(descriptors[:, 0], first_row + rows)[:, first_row:].reshape(len(warps), -1)
    lanes = 32 * warps[:, None] + np.arange(addresses.shape[1]) % 32
    pieces = row.unit.load_for_products(row, lanes.reshape(-1), addresses.reshape(-1), PIECE)
    return _tf32(pieces.view(U32)).reshape(-1, rows, DEPTH)


@opcode("fence", f"{SPACES} cta gl sys gpu cluster sc acq_rel acquire release proxy async alias mbarrier_init")
def _fence(d: Decoding) -> Step | None:
    """`fence.proxy.async`: what the thread knows of, products see from here on. `fence.acq_rel.gpu`: see `Messages`.

    Other fences do nothing here.
    """
    index = d.index

    def products(row: Row, mask: Mask) -> None:
        row.unit.begin(index)
        row.unit.order.fence_proxy(row.threads if mask is True else row.threads[mask])

    def blocks(row: Row, mask: Mask) -> None:
        row.unit.begin(index)
        messages = row.unit.order.messages
        assert messages is not None  # as there is such a fence
        messages.fence(row.threads if mask is True else row.threads[mask])

    if {"proxy", "async"} <= d.flags and "global" not in d.flags:
        return products
    return blocks if {"acq_rel", "gpu"} <= d.flags else None
