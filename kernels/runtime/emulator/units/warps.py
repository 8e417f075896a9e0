"""Instructions of whole warps, barriers and control flow."""

import numpy as np

from ..ptx.source import numpy_type
from ..row import Mask, Row
from . import arithmetic as am
from .decoding import (
    BARRIER,
    BRANCH,
    CLUSTER_WAIT,
    CONVERGENT,
    EXIT,
    GROUP,
    LANES,
    MEMBER,
    Instruction,
    Step,
    opcode,
)
from .transfers import address_of

F32, U32 = np.float32, np.uint32


def _convergent(d: Instruction, members: str | None = None) -> None:
    d.kind = CONVERGENT
    if members is not None:
        d.members = d.module.operand(members, "u32")


def _inactive(row: Row, mask: Mask, source: np.ndarray, index: int) -> None:
    """Report a value that is read from an inactive lane."""
    if mask is True:
        return
    bad = mask & ~mask[source]
    if bad.any():
        row.unit.current = index
        first = int(np.flatnonzero(bad)[0])
        row.unit.found("divergent_warp", "", "warp", row.threads[first], int(bad.sum()))


@opcode("shfl", "sync up down bfly idx")
def _shfl(d: Instruction) -> Step | None:
    mode, index = d.flag("up down bfly idx"), d.index
    if "sync" not in d.flags:
        raise d.unknown("form without .sync")
    _convergent(d, d.operands[4])
    first, _, second = d.operands[0].partition("|")
    target = d.module.result(first.strip(), "b32")
    predicate = d.module.result(second.strip(), "pred") if second else -1
    value = d.source(1, "b32")

    def lookup(lane, b, c):
        clamp, segment = c & 31, c >> 8 & 31
        low, high = lane & segment, (lane & segment) | (clamp & ~segment & 31)
        b = b & 31
        source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": low | (b & ~segment & 31)}[mode]
        good = source >= high if mode == "up" else source <= high
        return np.where(good, source, lane), good

    b, c = d.module.constant_value(d.operands[2]), d.module.constant_value(d.operands[3])
    if b is not None and c is not None:
        fixed, fixed_good = lookup(LANES, b, c)

        def step(row, mask):
            views = row.views
            moved = views[value].reshape(-1, 32)[:, fixed].reshape(-1)
            if mask is not True:
                _inactive(row, mask, (np.arange(row.size).reshape(-1, 32)[:, fixed]).reshape(-1), index)
            np.copyto(views[target], moved, where=mask)
            if predicate >= 0:
                np.copyto(
                    views[predicate].reshape(-1, 32), fixed_good, where=True if mask is True else mask.reshape(-1, 32)
                )

        if d.operands[1] in d.module.source.registers:
            return step
    slot_b, slot_c = d.source(2, "u32"), d.source(3, "u32")

    def general(row, mask):
        lane = np.arange(row.size) & 31
        inside, good = lookup(lane, row.lanes(slot_b).astype(np.int64), row.lanes(slot_c).astype(np.int64))
        source = np.arange(row.size) - lane + inside
        _inactive(row, mask, source, index)
        np.copyto(row.views[target], row.lanes(value)[source], where=mask)
        if predicate >= 0:
            np.copyto(row.views[predicate], good, where=mask)

    return general


def _ballot(bits: np.ndarray) -> np.ndarray:
    return np.packbits(bits, axis=1, bitorder="little").view(U32).reshape(-1)


@opcode("vote", "sync all any uni ballot")
def _vote(d: Instruction) -> Step | None:
    mode = d.flag("all any uni ballot")
    _convergent(d, d.operands[2])
    slot, negated = d.predicate(d.operands[1])
    target = d.result(0, "u32" if mode == "ballot" else "pred")

    def step(row, mask):
        active = row.active(mask)
        value = row.lanes(slot).reshape(-1, 32) ^ negated
        if mode == "ballot":
            result = _ballot(value & active)
        else:
            every, some = (value | ~active).all(axis=1), (value & active).any(axis=1)
            result = {"all": every, "any": some, "uni": every | ~some}[mode]
        np.copyto(row.views[target], result.repeat(32), where=mask)

    return step


@opcode("redux", "sync add min max")
def _redux(d: Instruction) -> Step | None:
    name = d.flag("add min max")
    ufunc = {"add": np.add, "min": np.minimum, "max": np.maximum}[name]
    _convergent(d, d.operands[2])
    slot, target, dtype = d.source(1), d.result(), numpy_type(d.type)
    if dtype.kind == "f":
        raise d.unknown("type")
    info = np.iinfo(dtype)
    neutral = {"add": 0, "min": info.max, "max": info.min}[name]

    def step(row, mask):
        value = np.where(row.active(mask), row.lanes(slot).reshape(-1, 32), dtype.type(neutral))
        np.copyto(row.views[target], ufunc.reduce(value, axis=1, dtype=dtype).repeat(32), where=mask)

    return step


def fragment(row: Row, slots: list[int], rows: int, kind: str) -> np.ndarray:
    """float64[warps, rows, terms]: 16 rows of A, or 8 columns of B, from the registers that hold them for a product."""
    blocks, per_lane = rows // 8, 1 if kind == "tf32" else 2
    value = np.zeros((row.size // 32, rows, len(slots) // blocks * 4 * per_lane))
    for register, slot in enumerate(slots):
        line, term = GROUP + 8 * (register % blocks), per_lane * (MEMBER + 4 * (register // blocks))
        numbers = am.factors(np.ascontiguousarray(row.lanes(slot)), kind).reshape(-1, 32, per_lane)
        for part in range(per_lane):
            value[:, line, term + part] = numbers[:, :, part]
    return value


@opcode("mma", "sync aligned row col m16n8k8 m16n8k16")
def _mma(d: Instruction) -> Step | None:
    """D = A B + C for row-major A and column-major B; products are summed in float64 and rounded once."""
    index = d.index
    kind = d.types[1] if len(d.types) == 4 else ""
    if kind not in ("tf32", "f16", "bf16") or d.types != ["f32", kind, kind, "f32"]:
        raise d.unknown("types")
    if d.flag("m16n8k8 m16n8k16") != ("m16n8k8" if kind == "tf32" else "m16n8k16"):
        raise d.unknown("shape")
    _convergent(d)
    a, b = ([d.module.operand(name, "b32") for name in d.vector(position)] for position in (1, 2))
    c = [d.module.operand(name, "f32") for name in d.vector(3)]
    targets = [d.module.result(name, "f32") for name in d.vector(0)]
    if [len(names) for names in (a, b, c, targets)] != [4, 2, 4, 4]:
        raise d.unknown("operands")

    def step(row, mask):
        active = row.active(mask)
        some = active.any(axis=1)
        if not (active.all(axis=1) == some).all():
            row.unit.current = index
            row.unit.found("divergent_warp", "", "warp", row.threads[int(np.flatnonzero(mask)[0])], int(mask.sum()))
        total = np.zeros((row.size // 32, 16, 8))
        for register, slot in enumerate(c):
            total[:, GROUP + 8 * (register >> 1), 2 * MEMBER + (register & 1)] = row.lanes(slot).reshape(-1, 32)
        total += fragment(row, a, 16, kind) @ fragment(row, b, 8, kind).swapaxes(1, 2)
        for register, target in enumerate(targets):
            value = total[:, GROUP + 8 * (register >> 1), 2 * MEMBER + (register & 1)].astype(F32)
            np.copyto(row.views[target], value.reshape(-1), where=mask)

    return step


@opcode("ldmatrix", "sync aligned m8n8 x4 trans shared shared::cta", ordered=True)
def _ldmatrix(d: Instruction) -> Step | None:
    address, transposed = address_of(d, d.operands[1]), "trans" in d.flags
    if d.type != "b16" or not {"m8n8", "x4"} <= d.flags:
        raise d.unknown("form")
    _convergent(d)
    targets = [d.module.result(name, "b32") for name in d.vector(0)]

    def step(row, mask):
        lanes, data, where = row.unit.load(row, mask, "shared", address(row), 16)
        rows = np.zeros((row.size, 8), np.uint16)
        rows[lanes] = data.view(np.uint16).reshape(-1, 8)[where]
        matrices = rows.reshape(-1, 4, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        words = np.ascontiguousarray(matrices).view(U32).reshape(-1, 4, 32)
        for position, target in enumerate(targets):
            np.copyto(row.views[target], words[:, position].reshape(-1), where=mask)

    return step


# --- barriers and control ---------------------------------------------------------------------------


@opcode("bar barrier", "sync cta warp aligned cluster arrive wait release acquire relaxed", ordered=True)
def _bar(d: Instruction) -> Step | None:
    if "warp" in d.flags:
        _convergent(d, d.operands[0])

        def sync_warp(row, mask):
            some = row.active(mask).any(axis=1)
            row.unit.order.sync_warps(row.threads[::32][some] >> 5)

        return sync_warp
    if "cluster" in d.flags:
        if "wait" in d.flags:
            d.kind = CLUSTER_WAIT
            return None

        def arrive(row, mask):
            row.arrived[slice(None) if mask is True else mask] += 1

        return arrive
    if "sync" not in d.flags or len(d.operands) != 1 or d.module.constant_value(d.operands[0]) is None:
        raise d.unknown("named barrier with a thread count, or without one")
    d.kind = BARRIER
    return None


@opcode("bra", "uni")
def _bra(d: Instruction) -> Step | None:
    d.kind = BRANCH
    if d.operands[0] not in d.module.source.labels:
        raise d.unknown(f"label {d.operands[0]}")
    d.target = d.module.source.labels[d.operands[0]]
    return None


@opcode("ret exit", "uni")
def _ret(d: Instruction) -> Step | None:
    d.kind = EXIT
    return None
