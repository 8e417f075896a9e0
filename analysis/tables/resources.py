"""What the compiler reports of each kernel."""

from __future__ import annotations

from ..record.files import RESOURCES, read_table
from .table import NOTHING, Table, code, name, small


def resources(family: str) -> Table:
    """What the compiler reports of every kernel of a family, at the largest head dim that each version takes."""
    frame = read_table(RESOURCES, "resources")
    frame = frame[frame["family"] == family]
    frame = frame[frame["hdim"] == frame.groupby("version")["hdim"].transform("max")]
    targets = dict.fromkeys(frame["target"])
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for row in frame.drop_duplicates(["version", "kernel", "target"]).itertuples():
        key = (name(row.version), str(row.hdim), code(row.kernel), f"{row.shared_bytes:,}", str(row.spill_bytes))
        rows.setdefault(key, {})[row.target] = f"{row.registers} {small(f'× {row.blocks_per_sm}')}"
    header = ("version", "hdim", "kernel", "shared, B", "spilled, B", *targets)
    return Table(
        header,
        [(*key, *(cells.get(target, NOTHING) for target in targets)) for key, cells in rows.items()],
        numbers=(header[1], *header[3:]),
        caption="Registers a thread × blocks that an SM holds, by target: assembled without a GPU.",
    )
