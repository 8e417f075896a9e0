"""The points of the roofline, hardware counters beside the emulator's, and what the compiler reports."""

from __future__ import annotations

from html import escape

import pandas as pd

from ..evidence import Evidence
from ..models import profiles
from ..record.files import RESOURCES, parsed
from ..record.text import NOTHING
from .table import Table, code, hdim, lines, name, rotary, small

POINT = {  # of `roofline.points`: column, header, unit, and how a number of units is written
    "bytes": ("MB", 1e6, "{:,.2f}"),
    "flop_per_byte": ("FLOP/B", 1, "{:,.2f}"),
    "us": ("µs", 1, "{:,.1f}"),
    "gb_s": ("GB/s", 1, "{:,.0f}"),
    "percent_of_roof": ("% of roof", 1, "{:,.1f}"),
}


def points(frame: pd.DataFrame) -> Table:
    """The points of the roofline (`roofline.points`), a row a version and shape: L2 above, DRAM below."""
    rows = []
    for _, levels in frame.groupby(["version", "hdim", "rotary_dim"], sort=False):
        by_level = levels.set_index("level")
        first = levels.iloc[0]
        row = {"version": name(first.version, bool(levels["stale"].any())), "hdim": f"{first.hdim}{rotary(first)}"}
        for column, (_, unit, text) in POINT.items():
            both = [by_level[column].get(level) for level in ("l2", "dram")]
            l2, dram = (NOTHING if value is None else text.format(value / unit) for value in both)
            row[column] = lines(l2, small(dram))
        row["bytes"] += f"<br>{small('emulator')}" if "emulator" in set(levels["bytes_from"]) else ""
        rows.append(row)
    return Table.from_frame(
        rows,
        {column: (column, str) for column in ("version", "hdim")}
        | {column: (title, str) for column, (title, *_) in POINT.items()},
        slice(1, None),
        "Above: bytes between L2 and the L1s, time device_warm. Below, small: bytes of DRAM, caches flushed, "
        "time device_cold. Bytes are those of hardware counters; where it says emulator, sectors that it counts, all "
        "that are asked for and the distinct ones. The roof is the smaller of the fp32 ceiling and what the level's "
        "bandwidth allows.",
    )


def bounds(e: Evidence, profiled: pd.DataFrame, hdim: int) -> Table:
    """How busy the units of the GPU are in the attention of every version at a head dim, and what holds it back."""
    return Table.from_frame(
        [
            {
                **launch,
                "version": name(launch["version"], launch["stale"]),
                "us": launch["duration_ns"] / 1e3,
                "blocks": profiles.blocks(launch),
                "bound": profiles.bound(launch, e.gpu["sms"]),
            }
            for launch in profiles.attention(profiles.at(profiled, hdim)).to_dict("records")
        ],
        {
            "version": ("version", str),
            "us": ("µs", "{:.1f}"),
            "dram_percent": ("DRAM %", "{:.1f}"),
            "l2_percent": ("L2 %", "{:.1f}"),
            "l1_percent": ("L1 %", "{:.1f}"),
            "issue_percent": ("issue %", "{:.1f}"),
            "warps_percent": ("warps %", "{:.1f}"),
            "blocks": ("blocks", str),
            "bound": ("held back by", lambda words: f"<span data-status='{escape(words)}'>{escape(words)}</span>"),
        },
        slice(1, -1),
        f"The attention kernel at head dim {hdim}, and what holds it back. Per cent of peak: DRAM, L2, and the "
        "path to L1 and shared memory, of the whole GPU; issue, of the schedulers that have warps. Warps: those "
        "resident, of all that an SM holds.",
    )


def caches(profiled: pd.DataFrame, version: str) -> Table:
    """What a version's attention moves at each level of memory, by head dim."""
    rows = []
    launches = profiles.attention(profiled[(profiled["version"] == version) & (profiled["study"] == "log")])
    for row in launches.sort_values("problem", key=lambda column: column.map(lambda p: p.hdim)).to_dict("records"):
        problem = row["problem"]
        tokens = problem.heads * problem.seq_q + problem.kv_heads * problem.seq_k
        rows.append(
            {
                "problem": problem,
                "shape": f"{problem.heads} × {problem.seq_q}",
                "tensors": 8 * problem.batch * problem.hdim * tokens / 1e6,
                "flushed": row["dram_read_bytes_cold"] / 1e6,
                "warm": row["dram_read_bytes"] / 1e6,
                "l2_to_l1": row["l2_to_l1_bytes"] / 1e6,
                "gb_s": row["l2_to_l1_bytes"] / row["duration_ns"],
                "blocks": profiles.blocks(row),
            }
        )
    return Table.from_frame(
        rows,
        {
            "problem": ("hdim", hdim),
            "shape": ("heads × seq", str),
            "tensors": ("tensors", "{:.3f}"),
            "flushed": ("flushed", "{:.3f}"),
            "warm": ("warm", "{:.3f}"),
            "l2_to_l1": ("L2 to L1", "{:.3f}"),
            "gb_s": ("GB/s", "{:,.0f}"),
            "blocks": ("blocks", str),
        },
        slice(None),
        f"{code(version)}, its attention kernel: MB of Q, K, V and out; MB read from DRAM with caches flushed "
        "and warm; MB from L2 to the L1s, and GB/s.",
    )


def emulator_agreement(summary: pd.DataFrame) -> Table:
    """How near the emulator's counts come to the hardware's (`counter_agreement.agreement`)."""
    return Table.from_frame(
        [
            {
                **row,
                "quantity": lines(row["quantity"], small(escape(row["why"])) if row["why"] else ""),
                "range": f"{row['low']:.2f}–{row['high']:.2f}",
                "near": 100 * row["near"],
                "close": 100 * row["close"],
            }
            for row in summary.to_dict("records")
        ],
        {
            "quantity": ("counted", str),
            "launches": ("launches", str),
            "median": ("median", "{:.2f}"),
            "range": ("5–95 %", str),
            "near": ("within 1 %", "{:.0f} %"),
            "close": ("within 10 %", "{:.0f} %"),
        },
        slice(1, None),
        "The hardware's count over the emulator's: median over the launches, 5th to 95th percentile, and the "
        "share of launches in which it is near 1.",
    )


def resources(family: str) -> Table:
    """What the compiler reports of every kernel of a family, at the largest head dim that each version takes."""
    frame = parsed(RESOURCES, "resources")
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
