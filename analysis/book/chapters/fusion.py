"""Why one embedding fused and the other did not: what each version does and takes, on one scale for both."""

from __future__ import annotations

import pandas as pd

from kernels import VERSIONS

from ...records.interval import geometric_mean
from ...records.measured import Measured, Time
from ...records.text import factor, number
from ...tables import NOTHING, Table, link
from ...verdicts.facts import Facts
from ...verdicts.measures import SEPARATE, embedded, rotary
from ...verdicts.rule import Undecided, interval
from ..findings import Speedups, why_none

HDIM = 2048
SECTOR_BYTES = 32
DEVICE = "device_warm"
COLUMNS = (
    "version", "family", "launches", "embedded", "sines", "asked_mb", "us", "speedup", "low", "high", "status",
)  # fmt: skip


def work(evidence: Measured, facts: Facts) -> pd.DataFrame:
    """What every version that embeds does and takes at head dim 2048, in the order of the log."""
    rows = []
    for family, separate in SEPARATE.items():
        for version in evidence.versions(family):
            if not VERSIONS[version].fast_math:
                try:
                    rows.append(_row(facts, version, separate, evidence))
                except Undecided:  # not counted, or too large for the log's shared memory
                    continue
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(facts: Facts, version: str, separate: str, evidence: Measured) -> dict[str, object]:
    chosen = rotary(version)

    def counted(*counters: str) -> float:
        return float(sum(facts.count(version, counter, HDIM, **chosen) for counter in counters))

    over = interval(facts.speed(version, separate, HDIM, **chosen), facts.pools)
    problem = evidence.shapes(version)[HDIM]
    check = evidence.check(version, problem)
    return {
        "version": version,
        "family": VERSIONS[version].family,
        "launches": facts.launches(version, HDIM, **chosen),
        "embedded": embedded(facts, version, HDIM),
        "sines": counted("event.sin", "event.cos", "event.sincos"),
        "asked_mb": SECTOR_BYTES * counted("global.read.sectors", "global.write.sectors") / 1e6,
        "us": Time.of(facts.us(version, HDIM, **chosen)).us,
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


def across(evidence: Measured, version: str, baseline: str) -> Speedups:
    """Speedup of a version over one of another family, at the shapes of the log that both have."""
    mine, theirs = evidence.shapes(version), evidence.shapes(baseline)
    found = {}
    for hdim in sorted(mine.keys() & theirs.keys()):
        over, own = evidence.medians(baseline, theirs[hdim], DEVICE), evidence.medians(version, mine[hdim], DEVICE)
        if len(ratios := (over / own).dropna()):
            found[hdim] = geometric_mean(ratios.to_numpy())
    return Speedups(found) if found else Speedups(why=why_none(evidence, version))
