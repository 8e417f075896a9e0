"""Barriers in shared memory (mbarrier), and stores (st.async) and tensor copies that count at them.

The data of a store arrives at once; a reader that has not waited for its phase races with it. A waiting warp resumes
when its phase has completed. A wait, like a send, is executed by the whole warp.
"""

import numpy as np

from ..memory.order import I64
from ..memory.tensors import copy_tensor
from ..ptx.source import numpy_type, split_operands
from ..row import Mask, Row
from .decoding import PHASE_WAIT, Instruction, Step, opcode
from .transfers import ADDRESS, address_of


@opcode(
    "mbarrier", "init arrive expect_tx try_wait parity shared shared::cta acquire release cta cluster", ordered=True
)
def _mbarrier(d: Instruction) -> Step | None:
    index, name = d.index, d.modifiers[0]
    if d.type != "b64" or not {"shared", "shared::cta"} & d.flags:
        raise d.unknown("type or space")
    if name == "init":
        address, count = address_of(d, d.operands[0]), d.source(1, "u32")

        def init(row: Row, mask: Mask) -> None:
            lanes = row.indices(mask)
            positions = row.unit.place_barriers(row, lanes, address(row)[lanes])
            row.barriers.init(positions, row.lanes(count)[lanes].astype(I64))

        return init
    address = address_of(d, d.operands[1])
    if name == "arrive":
        expects = "expect_tx" in d.flags
        if d.operands[0] != "_" or len(d.operands) != 2 + expects:
            raise d.unknown("a state or a count")
        expected = d.source(2, "u32") if expects else d.module.operand("0", "u32")

        def arrive(row: Row, mask: Mask) -> None:
            lanes = row.indices(mask)
            slots = row.unit.use_barriers(row, lanes, address(row)[lanes], False)
            row.barriers.arrive(slots, row.threads[lanes] >> 5, row.lanes(expected)[lanes].astype(I64))

        return arrive
    if name != "try_wait" or "parity" not in d.flags or d.statement.guard:
        raise d.unknown("form, or a guard,")
    target, parity = d.result(0, "pred"), d.source(2, "u32")
    d.kind = PHASE_WAIT

    def blocked(row: Row, mask: Mask) -> np.ndarray | None:
        """The slots of the barriers that lanes wait for, -1 for lanes that may continue; None if all may."""
        row.unit.current = index
        lanes = row.indices(mask)
        slots = row.unit.find_barriers(row, lanes, address(row)[lanes], False)[0]
        waits = row.barriers.phase[slots] & 1 == row.lanes(parity)[lanes] & 1
        if not waits.any():
            return None
        waited = np.full(row.size, -1)
        waited[lanes[waits]] = slots[waits]
        return waited

    def wait(row: Row, mask: Mask) -> None:
        lanes = row.indices(mask)
        slots = row.unit.use_barriers(row, lanes, address(row)[lanes], False)
        row.barriers.acquire(slots, row.threads[lanes] >> 5)
        np.copyto(row.views[target], True, where=mask)

    d.blocked = blocked
    return wait


@opcode("st.async", "async weak shared::cluster mbarrier::complete_tx::bytes v2 v4", ordered=True)
def _st_async(d: Instruction) -> Step | None:
    if not {"shared::cluster", "mbarrier::complete_tx::bytes"} <= d.flags:
        raise d.unknown("form")
    address, barrier = address_of(d, d.operands[0]), address_of(d, d.operands[2])
    names = d.vector(1)
    if len(names) != int(d.flag("v2 v4", "v1")[1]) or numpy_type(d.type).itemsize < 4:
        raise d.unknown("vector length or type")
    sources = [d.module.operand(name, d.type) for name in names]

    def send(row: Row, mask: Mask) -> None:
        lanes = row.indices(mask)
        values = np.stack([row.lanes(source)[lanes] for source in sources], axis=1)
        slots = row.unit.use_barriers(row, lanes, barrier(row)[lanes], True)
        block, agents = row.barriers.position[slots] // row.shared.stride, row.barriers.agent[slots]
        row.unit.store_async(row, lanes, address(row)[lanes], values, block, agents)
        row.barriers.deliver(slots, row.threads[lanes] >> 5, values.itemsize * len(names))

    return send


BULK = "async bulk tensor 2d 3d 4d shared::cluster global tile mbarrier::complete_tx::bytes"


@opcode("cp.async.bulk.tensor", BULK, ordered=True)
def _copy_tensor(d: Instruction) -> Step | None:
    """Copy a box of a tensor to the shared memory of the block; each active lane copies one."""
    if d.modifiers[4:6] != ["shared::cluster", "global"] or "mbarrier::complete_tx::bytes" not in d.flags:
        raise d.unknown("form")
    address, barrier = address_of(d, d.operands[0]), address_of(d, d.operands[2])
    tensor, _, place = d.operands[1].strip("[] ").partition(",")
    if ADDRESS.fullmatch(f"[{tensor}]") is None or len(d.operands) != 3:
        raise d.unknown("operands")
    where = address_of(d, f"[{tensor}]")
    coordinates = [d.module.operand(name, "s32") for name in split_operands(place.strip(" {}"))]
    if len(coordinates) != int(d.flag("2d 3d 4d", "0")[0]):
        raise d.unknown("coordinates")

    def copy(row: Row, mask: Mask) -> None:
        places, maps, to = np.stack([row.lanes(each) for each in coordinates], 1), where(row), address(row)
        lanes = row.indices(mask)
        slots = row.unit.use_barriers(row, lanes, barrier(row)[lanes], True)
        for lane, slot in zip(lanes.tolist(), slots.tolist()):
            copy_tensor(row.unit, row, lane, int(to[lane]), int(maps[lane]), places[lane].tolist(), slot)

    return copy
