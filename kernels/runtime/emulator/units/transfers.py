"""Instructions that move data between memory and registers, and addresses of other blocks' shared memory."""

import re
from collections.abc import Callable

import numpy as np

from ....device.mark import EVENTS
from ..memory.contents import RANK_SHIFT
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
    flag = d.flag("global const shared shared::cta shared::cluster local")
    if not flag:
        raise d.unknown("a generic address")
    return {"const": "global", "shared::cta": "shared", "shared::cluster": "cluster"}.get(flag, flag)


SPACES = "global const shared shared::cta shared::cluster local param"


@opcode("ld", f"{SPACES} {MEMORY_HINTS} v2 v4", ordered=True)
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

    def step(row, mask):
        lanes, data, where = row.unit.load(row, mask, space, address(row), width)
        values = data.view(dtype).reshape(-1, len(targets))[where]
        for position, target in enumerate(targets):
            row.views[target][lanes] = values[:, position]

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
        row.unit.store(row, mask, space, address(row), values)

    return step


ATOMIC: dict[str, Callable] = {"add": np.add, "min": np.minimum, "max": np.maximum}


@opcode("atom red", f"{SPACES} {MEMORY_HINTS} acq_rel noftz {' '.join(ATOMIC)}", ordered=True)
def _atom(d: Instruction) -> Step | None:
    returns = d.head == "atom"
    space, address = _space(d), address_of(d, d.operands[int(returns)])
    name = d.flag(" ".join(ATOMIC))
    if (d.is_float and name in ("min", "max")) or space == "local":
        raise d.unknown("type")
    operation, operand = ATOMIC[name], d.source(1 + returns)
    target = d.result() if returns else -1

    def step(row, mask):
        lanes, old = row.unit.atomic(row, mask, space, address(row), operation, row.lanes(operand))
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
    if d.type != "u32" or "shared::cluster" not in d.flags:
        raise d.unknown("form")

    def mapped(address, rank):
        return address & U32((1 << RANK_SHIFT) - 1) | rank + U32(1) << U32(RANK_SHIFT)

    return elementwise(mapped, d.result(), d.source(1), d.source(2, "u32"))


@opcode("membar griddepcontrol", "cta gl sys wait launch_dependents")
def _nothing(d: Instruction) -> Step | None:
    """These have no effect here: the shadow follows barriers and those fences that are modelled."""
    return None


@opcode("mark", " ".join(EVENTS))
def _mark(d: Instruction) -> Step | None:
    """Only counted."""
    return None
