"""Why one embedding fused and the other did not: what each version does and takes, on one scale for both."""

from __future__ import annotations

import pandas as pd

from kernels import VERSIONS

from ..claims.measures import SEPARATE, embedded, rotary
from ..evidence import Evidence
from ..record.text import factor, number
from .table import NOTHING, Table, link

HDIM = 2048
SECTOR_BYTES = 32
COLUMNS = (
    "version", "family", "launches", "embedded", "sines", "asked_mb", "us", "speedup", "low", "high", "status",
)  # fmt: skip


def work(e: Evidence) -> pd.DataFrame:
    """What every version that embeds does and takes at head dim 2048, in the order of the log."""
    rows = [
        row
        for family, separate in SEPARATE.items()
        for version in e.study("log").versions(family)
        if not VERSIONS[version].fast_math and (row := _row(e, version, separate))
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(e: Evidence, version: str, separate: str) -> dict[str, object] | None:
    """None of a version that was not counted, or is too large for the log's shared memory."""
    chosen = rotary(version)

    def counted(*counters: str) -> float:
        return sum(e.count(version, counter, hdim=HDIM, **chosen)[HDIM].value for counter in counters)

    over = e.speedup(version, over=separate, hdim=HDIM, **chosen)[HDIM]
    taken, embeds = e.time(version, hdim=HDIM, **chosen)[HDIM], embedded(e, version, HDIM)[HDIM]
    if not (over and taken and embeds):
        return None
    check = e.study("log").check(version, e.study("log").shapes(version)[HDIM])
    return {
        "version": version,
        "family": VERSIONS[version].family,
        "launches": e.launches(version, hdim=HDIM, **chosen)[HDIM].value,
        "embedded": embeds.value,
        "sines": counted("event.sin", "event.cos", "event.sincos"),
        "asked_mb": SECTOR_BYTES * counted("global.read.sectors", "global.write.sectors") / 1e6,
        "us": taken.value,
        "speedup": over.value,
        "low": over.low,
        "high": over.high,
        "status": check.status if check else "",
    }


def work_table(frame: pd.DataFrame) -> Table:
    """The rows of `work`."""
    return Table.from_frame(
        frame,
        {
            "version": ("version", link),
            "launches": ("launches", "{:.0f}"),
            "embedded": ("embeds", "{:.3g}×"),
            "sines": ("sines and cosines, M", lambda count: number(count / 1e6) if count else NOTHING),
            "asked_mb": ("MB read and written", "{:,.0f}"),
            "us": ("µs", "{:.1f}"),
            "speedup": ("speedup", factor),
        },
        slice(1, None),
        f"One call at head dim {HDIM}, 4 heads of 64 tokens. Embeds: how often each element of Q and K is embedded. "
        "RoPE is counted as the log timed each version: all dims rotated, or a part of them. "
        "Sines, cosines and MB of 32-byte sectors are counted by the emulator. Times are of "
        "the GPU alone; the speedup is over separate kernels with float4 loads that embed the same dims.",
    )
