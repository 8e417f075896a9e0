"""What Nsight Compute read in every launch, by the names used here; and what a warp waits for."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from kernels import VERSIONS

from ..measure.counters import STALL, STALLS
from ..record.files import with_problems

SECTOR_BYTES = 32
BUSY = 60.0  # % of its peak at which a unit, and not latency, holds a kernel back: the rule of Nsight Compute

# The columns of `launches`, and the metric that each of them is.
METRICS = {
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1_percent": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    **{f"stall_{reason}": STALL.format(reason) for reason in STALLS},
}
UNITS = {"DRAM": "dram_percent", "L2": "l2_percent", "L1 and shared memory": "l1_percent", "issue": "issue_percent"}


ISSUES, BARRIER = "nothing: it issues, or could", "other warps at a barrier"
WAITS = {  # the reasons for which a warp does not issue, under headings
    ISSUES: ("selected", "not_selected"),
    "its last result, or a unit": ("wait", "dispatch_stall", "math_pipe_throttle"),
    "its next instruction": ("no_instruction", "branch_resolving", "imc_miss"),
    "shared memory, special functions": ("short_scoreboard", "mio_throttle"),
    "global or local memory": ("long_scoreboard", "lg_throttle", "tex_throttle", "drain", "membar"),
    BARRIER: ("barrier",),
    "something else": ("sleeping", "misc"),
}


def launches(counters: pd.DataFrame) -> pd.DataFrame:
    """A row a launch of the table of counters, in the order of the log, with the columns of `METRICS`.

    A metric that was not recorded is a column of NaN; where nothing was recorded there are no rows.
    """
    keys = ["study", "version", "problem", "launch", "kernel", "source_hash"]
    long = with_problems(counters)
    if long.empty:
        return pd.DataFrame(columns=[*keys, *METRICS, "run"])
    long = long[long["version"].isin(VERSIONS)]
    wide = long.pivot_table(index=keys, columns="metric", values="value", sort=False)
    wide = wide.reindex(columns=list(METRICS.values())).set_axis(list(METRICS), axis="columns").reset_index()
    wide = wide.merge(long.groupby(keys, sort=False)["run"].max().reset_index(), on=keys)  # of several, the last
    place = {name: number for number, name in enumerate(VERSIONS)}
    return wide.sort_values(["version", "problem", "launch"], key=lambda c: c.map(place) if c.name == "version" else c)


def attention(profiled: pd.DataFrame) -> pd.DataFrame:
    """Of every call the last launch, which is its attention."""
    return profiled[profiled["launch"] == profiled.groupby(["version", "problem"])["launch"].transform("max")]


def at(profiled: pd.DataFrame, hdim: int, study: str = "log") -> pd.DataFrame:
    """A study's launches at a head dim; of RoPE those of the least rotary dim that a version takes, as published."""
    dims = profiled["problem"].map(lambda problem: problem.hdim)
    mine = profiled[(profiled["study"] == study) & (dims == hdim)]
    rotated = mine["problem"].map(lambda problem: problem.rotary_dim)
    return mine[rotated == rotated.groupby(mine["version"]).transform("min")]


def waits(launch: Mapping[str, Any]) -> dict[str, float]:
    """The share of its time, between 0 and 1, that a warp spends on each of `WAITS`; a GPU may lack some reasons."""
    values = {reason: launch[f"stall_{reason}"] for reason in STALLS}
    spent = {name: sum(values[each] for each in reasons if values[each] >= 0) for name, reasons in WAITS.items()}
    total = sum(spent.values())
    return {name: value / total for name, value in spent.items()}
