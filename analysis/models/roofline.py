"""A roofline at two levels, DRAM and L2: measured times, bytes and ceilings, FLOP from the shape.

Bytes are those of the hardware counters, summed over the launches of a call: from L2 to the L1s and from the SMs to L2
with caches warm, at DRAM with caches flushed. Where there are no counters they are the emulator's 32-byte sectors: all
that are asked for, and the distinct ones of each launch. A point says which it has.

The published times have no counters: they stand below the roofline of their card's datasheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from kernels import VERSIONS, Problem

from ..evidence import Evidence
from ..evidence.current import outdated
from ..record import published
from ..record.files import COUNTS, parsed, with_problems
from . import profiles

SECTOR_BYTES = 32
SECTORS = {  # by the level of memory that they reach
    "global.read.sectors": "l2",
    "global.write.sectors": "l2",
    "global.unique_sectors.read": "dram",
    "global.unique_sectors.write": "dram",
}
LEVELS = {"l2": ("l2_read_gb_s", "device_warm"), "dram": ("read_gb_s", "device_cold")}  # the ceiling and the timer
COLUMNS = ("version", "family", "hdim", "bytes_from", "level", "tflops", "flop_per_byte", "percent_of_roof")
PAIR = ["version", "problem"]


class Datasheet(NamedTuple):
    """What a maker states of a card that was not at hand: peak rates, not measured ones."""

    name: str
    fp32_tflops: float
    dram_gb_s: float
    source: str


RTX_4000_ADA = Datasheet("RTX 4000 Ada", fp32_tflops=26.7, dram_gb_s=360.0, source="as the write-up prints it")


def counts() -> pd.DataFrame:
    """data/counts.csv, not to be changed; without rows where nothing has been counted yet. Raises: DataError."""
    return parsed(COUNTS, "counts") if COUNTS.exists() else pd.DataFrame()


def counted_bytes(counted: pd.DataFrame) -> pd.DataFrame:
    """Bytes of a call by version and problem, by the emulator: `l2` asked for and `dram` touched, and whether stale."""
    if counted.empty:
        return pd.DataFrame(columns=["l2", "dram", "stale"])
    mine = counted[counted["version"].isin(VERSIONS) & counted["counter"].isin(SECTORS)]
    mine = with_problems(mine).assign(level=mine["counter"].map(SECTORS), stale=outdated(mine))
    mine = mine[mine["target"] == mine.groupby(PAIR)["target"].transform("first")]
    sums = mine.pivot_table(index=PAIR, columns="level", values="value", aggfunc="sum", sort=False)
    return (SECTOR_BYTES * sums).assign(stale=mine.groupby(PAIR)["stale"].any())


def profiled_bytes(profiled: pd.DataFrame) -> pd.DataFrame:
    """The same by the hardware counters."""
    l2 = profiled["l2_to_l1_bytes"] + SECTOR_BYTES * profiled["l1_store_sectors"]
    dram = profiled["dram_read_bytes_cold"] + profiled["dram_write_bytes_cold"]
    sums = profiled.assign(l2=l2, dram=dram).groupby(PAIR, sort=False)
    return sums[["l2", "dram"]].sum(min_count=1).dropna().assign(stale=sums["stale"].any())


def points(e: Evidence, counted: pd.DataFrame | None = None, profiled: pd.DataFrame | None = None) -> pd.DataFrame:
    """A row a level for every version and problem that was timed, and profiled or counted.

    `percent_of_roof` is of the smaller of the fp32 ceiling and what the level's bandwidth allows at those bytes.
    """
    study = e.study("log")
    profiled = profiles.launches(e.record.folder) if profiled is None else profiled
    sources = {
        "counters": profiled_bytes(profiled),
        "emulator": counted_bytes(counts() if counted is None else counted),
    }
    rows = []
    for version, problem in sorted(
        dict.fromkeys(key for source in sources.values() for key in source.index), key=_place
    ):
        name = next(name for name, source in sources.items() if (version, problem) in source.index)
        moved = sources[name].loc[(version, problem)]
        check = study.check(version, problem)
        for level, (ceiling, timer) in LEVELS.items():
            taken = e.time(version, study="log", timer=timer, problem=problem)[problem]
            if taken and moved[level]:
                rows.append(
                    {
                        **_shape(version, problem),
                        "bytes_from": name,
                        "level": level,
                        "bytes": moved[level],
                        "us": taken.value,
                        "gb_s": moved[level] / taken.value / 1e3,
                        **_point(problem, moved[level], taken.value, e.gpu["ceilings"], ceiling),
                        "status": check.status if check else "",
                        "stale": int(moved["stale"] or study.stale(version, problem)),
                    }
                )
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else COLUMNS)


def published_points(sheet: Datasheet = RTX_4000_ADA, counted: pd.DataFrame | None = None) -> pd.DataFrame:
    """A row for every published time of a version that was counted: its place below its card's datasheet roofline.

    Bytes are the distinct sectors that the kernels here touch, the least that DRAM must bring; the published time has
    launches and host syncs in it.
    """
    touched = counted_bytes(counts() if counted is None else counted)
    said = published.load().query("quantity == 'time_ms' and gpu == @sheet.name")
    ceilings = {"fp32_tflops": sheet.fp32_tflops, "dram_gb_s": sheet.dram_gb_s}
    rows = []
    for (version, problem), moved in touched.iterrows():
        stated = published.published(version, problem)
        if version in set(said["version"]) and stated:
            us, nbytes = 1e3 * stated.value, moved["dram"]
            point = _point(problem, nbytes, us, ceilings, "dram_gb_s")
            rows.append({**_shape(version, problem), "bytes": nbytes, "published_us": us, **point})
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else COLUMNS)


def _place(key: tuple[str, Problem]) -> tuple[int, int, int]:
    """In the order of the log, then by head dim."""
    version, problem = key
    return list(VERSIONS).index(version), problem.hdim, problem.rotary_dim


def _shape(version: str, problem: Problem) -> dict[str, Any]:
    names = ("family", "hdim", "rotary_dim", "heads")
    own = {name: getattr(problem, name) for name in names}
    return {"version": version, **own, "seq": problem.seq_q, "flop": problem.flops}


def _point(problem: Problem, moved: float, us: float, ceilings: Mapping[str, float], ceiling: str) -> dict[str, float]:
    """Where `moved` bytes and a time put a problem below a roof."""
    tflops, intensity = problem.flops / us / 1e6, problem.flops / moved
    roof = min(ceilings["fp32_tflops"], intensity * ceilings[ceiling] / 1e3)
    return {"tflops": tflops, "flop_per_byte": intensity, "percent_of_roof": 100 * tflops / roof}


def sources(frame: pd.DataFrame) -> str:
    """Where the bytes of some points are from, in words."""
    words = {"counters": "hardware counters", "emulator": "sectors counted by the emulator, not by hardware"}
    return " or, where there are none, ".join(words[name] for name in sorted(set(frame["bytes_from"])))
