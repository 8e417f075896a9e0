"""A roofline: measured time and ceilings, FLOP from the shape, bytes from the emulator's sectors.

Until there are hardware counters, bytes are 32-byte sectors that the emulator counts in the compiled
kernels: all that are asked for, and the distinct ones that each launch touches.
"""

from __future__ import annotations

import pandas as pd

from kernels import VERSIONS

from .data import COUNTS, problem_of, read_table
from .evidence import Measured, today

SECTOR_BYTES = 32
REQUESTED = ("global.read.sectors", "global.write.sectors")
TOUCHED = ("global.unique_sectors.read", "global.unique_sectors.write")
COLUMNS = ("version", "family", "requested_flop_per_byte", "touched_flop_per_byte")  # of a roofline without points


def counts() -> pd.DataFrame:
    """data/counts.csv; without rows where nothing has been counted yet. Raises: DataError."""
    return read_table(COUNTS, "counts") if COUNTS.exists() else pd.DataFrame()


def points(evidence: Measured, counted: pd.DataFrame | None = None) -> pd.DataFrame:
    """A row for every version and problem that was both timed and counted."""
    counted = counts() if counted is None else counted
    ceilings = evidence.gpu["ceilings"]
    rows = []
    if len(counted):
        counted = counted.assign(problem=[problem_of(row) for row in counted.to_dict("records")])
        for (version, problem), mine in counted.groupby(["version", "problem"], sort=False):
            mine = mine[mine["target"] == mine["target"].iloc[0]]
            totals = mine.groupby("counter")["value"].sum()
            requested = SECTOR_BYTES * sum(totals.get(name, 0) for name in REQUESTED)
            touched = SECTOR_BYTES * sum(totals.get(name, 0) for name in TOUCHED)
            taken, check = evidence.time(version, problem), evidence.check(version, problem)
            if version not in VERSIONS or not taken or not requested or not touched:
                continue
            roof = min(ceilings["fp32_tflops"], problem.flops / requested * ceilings["l2_read_gb_s"] / 1e3)
            stale = evidence.stale(version, problem) or bool((mine["source_hash"] != today(version)).any())
            rows.append(
                {
                    "version": version,
                    "family": problem.family,
                    "hdim": problem.hdim,
                    "rotary_dim": problem.rotary_dim,
                    "heads": problem.heads,
                    "seq": problem.seq_q,
                    "flop": problem.flops,
                    "requested_bytes": requested,
                    "touched_bytes": touched,
                    "median_us": taken.us,
                    "tflops": problem.flops / taken.us / 1e6,
                    "requested_flop_per_byte": problem.flops / requested,
                    "touched_flop_per_byte": problem.flops / touched,
                    "requested_gb_s": requested / taken.us / 1e3,
                    "percent_of_roof": 100 * problem.flops / taken.us / 1e6 / roof,
                    "status": check.status if check else "",
                    "stale": int(stale),
                }
            )
    order = list(VERSIONS)
    rows.sort(key=lambda row: (order.index(row["version"]), row["hdim"], row["rotary_dim"]))
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else COLUMNS)
