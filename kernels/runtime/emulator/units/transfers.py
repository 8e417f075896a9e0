"""Instructions that move data between memory and registers, and addresses of other blocks' shared memory."""

import re
from collections.abc import Callable

import numpy as np

from ....device.mark import EVENTS
from ..memory.contents import RANK_SHIFT, SHARED_WINDOW
from ..ptx.source import numpy_type
from .decoding import Instruction, Step, elementwise, opcode

U32 = np.uint32
MEMORY_HINTS = "volatile relaxed acquire release weak cta cluster gpu sys nc ca cg cs lu cv wb wt"
ADDRESS = re.compile(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+))?\s*\]")


def address_of(d: Instruction, text: str) -> Callable:
    """A closure row -> int64 addresses, one per lane."""
    match = ADDRESS.fullmatch(text)
    if match is None:
        raise d.unknown(f"address {text}")
    base, offset = match[1], int(match[2] or "0", 0)
    registers = d.module.source.registers
    if base in registers:
        slot = d.module.operand(base, "s64" if registers[base] == 8 else "u32")
        displacement = np.int64(offset)
        return lambda row: np.add(row.views[slot], displacement, dtype=np.int64)
    slot = d.module.operand(base, "s64")
    return lambda row: np.full(row.size, int(row.views[slot]) + offset, np.int64)


def _space(d: Instruction) -> str:
    flag = d.flag("global const shared shared::cta shared::cluster local", "generic")
    return {"const": "global", "shared::cta": "shared", "shared::cluster": "cluster"}.get(flag, flag)


SPACES = "global const shared shared::cta shared::cluster local param"


@opcode("ld ldu", f"{SPACES} {MEMORY_HINTS} v2 v4", ordered=True)
def _ld(d: Instruction) -> Step | None:
    if "param" in d.flags:
        return _ld_param(d)
    space, address = _space(d), address_of(d, d.operands[1])
    dtype = numpy_type(d.type)
    names = d.vector(0)
    if len(names) != int(d.flag("v2 v4", "v1")[1]):
        raise d.unknown("vector length")
    targets = [d.module.result(name, dtype) for name in names]
    width = dtype.itemsize * len(targets)

    def one_space(row, mask, space, addresses):
        lanes, data, where = row.unit.load(row, mask, space, addresses, width)
        values = data.view(dtype).reshape(-1, len(targets))[where]
        for position, target in enumerate(targets):
            row.views[target][lanes] = values[:, position]

    def step(row, mask):
        for part, active, there in row.unit.spaces(space, mask, address(row)):
            one_space(row, active, part, there)

    return step


def _ld_param(d: Instruction) -> Step | None:
    match = ADDRESS.fullmatch(d.operands[1])
    if match is None or match[2] not in (None, "0") or match[1] not in d.module.source.params:
        raise d.unknown(f"parameter {d.operands[1]}")
    return elementwise(np.asarray, d.result(), d.module.param(match[1], d.type))


@opcode("st", f"{SPACES} {MEMORY_HINTS} v2 v4", ordered=True)
def _st(d: Instruction) -> Step | None:
    space, address = _space(d), address_of(d, d.operands[0])
    dtype = numpy_type(d.type)
    bits = np.dtype(f"u{dtype.itemsize}")
    names = d.vector(1)
    if len(names) != int(d.flag("v2 v4", "v1")[1]) or "param" in d.flags:
        raise d.unknown("vector length or space")
    if all(d.module.source.registers.get(name) == dtype.itemsize for name in names):
        dtype = bits
    sources = [d.module.operand(name, dtype) for name in names]

    def step(row, mask):
        columns = [row.lanes(source) for source in sources]
        values = (columns[0] if len(columns) == 1 else np.stack(columns, axis=1)).view(bits)
        for part, active, there in row.unit.spaces(space, mask, address(row)):
            row.unit.store(row, active, part, there, values)

    return step


ATOMIC: dict[str, Callable] = {
    "add": np.add, "exch": lambda old, new: new, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "cas": lambda old, compare, new: np.where(old == compare, new, old),
    "inc": lambda old, top: np.where(old >= top, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, top: np.where((old == 0) | (old > top), top, old - old.dtype.type(1)),
}  # fmt: skip


@opcode("atom red", f"{SPACES} {MEMORY_HINTS} acq_rel min max noftz {' '.join(ATOMIC)}", ordered=True)
def _atom(d: Instruction) -> Step | None:
    returns = d.head == "atom"
    space, address = _space(d), address_of(d, d.operands[int(returns)])
    name = d.flag("min max " + " ".join(ATOMIC))
    if (d.is_float and name in ("min", "max")) or space == "local":
        raise d.unknown("type")
    operation = {"min": np.minimum, "max": np.maximum}.get(name) or ATOMIC[name]
    operands = d.sources(*range(1 + returns, len(d.operands)))
    target = d.result() if returns else -1

    def step(row, mask):
        values = [row.lanes(operand) for operand in operands]
        for part, active, there in row.unit.spaces(space, mask, address(row)):
            lanes, old = row.unit.atomic(row, active, part, there, operation, values)
            if returns:
                row.views[target][lanes] = old

    return step


@opcode("cp", "async cg ca shared shared::cta global commit_group wait_group wait_all", ordered=True)
def _cp(d: Instruction) -> Step | None:
    if "async" not in d.flags:
        raise d.unknown("form")
    if "commit_group" in d.flags:

        def commit(row, mask):
            row.groups_committed[slice(None) if mask is True else mask] += 1

        return commit
    if d.flags & {"wait_group", "wait_all"}:
        pending = int(d.operands[0], 0) if "wait_group" in d.flags else None

        def wait(row, mask):
            row.unit.wait_async(row, mask, pending)

        return wait
    destination, source = address_of(d, d.operands[0]), address_of(d, d.operands[1])
    size = d.module.constant_value(d.operands[2])
    if size not in (4, 8, 16):
        raise d.unknown("size")
    used = d.source(3, "u32") if len(d.operands) > 3 else -1

    def copy(row, mask):
        row.unit.copy_async(row, mask, destination(row), source(row), size, row.lanes(used) if used >= 0 else None)

    return copy


@opcode("mapa", "shared::cluster")
def _mapa(d: Instruction) -> Step | None:
    kind = numpy_type(d.type)
    window = kind.type(SHARED_WINDOW if "shared::cluster" not in d.flags else 0)

    def mapped(address, rank):
        own = (address - window) & kind.type((1 << RANK_SHIFT) - 1)
        return window + (own | ((rank + U32(1)).astype(kind) << kind.type(RANK_SHIFT)))

    return elementwise(mapped, d.result(), d.source(1), d.source(2, "u32"))


@opcode(
    "membar prefetch prefetchu discard griddepcontrol",
    f"{SPACES} cta gl sys wait launch_dependents",
)
def _nothing(d: Instruction) -> Step | None:
    """These have no effect here: the shadow follows barriers and those fences that are modelled."""
    return None


@opcode("mark", " ".join(EVENTS))
def _mark(d: Instruction) -> Step | None:
    """Only counted."""
    return None
