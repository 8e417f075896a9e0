"""Why one embedding fused and the other did not: what each version does and takes, on one scale for both."""

from __future__ import annotations

from typing import Any

import pandas as pd

from kernels import VERSIONS

from ...records.measured import Measured
from ...records.text import number
from ...verdicts.facts import Facts
from ...verdicts.measures import SEPARATE, embedded, rotary
from ...verdicts.rule import Undecided
from ..tables import NOTHING, Table, link, small

HDIM = 2048
SECTOR_BYTES = 32
COLUMNS = (
    "version", "family", "launches", "embedded", "sines", "powers", "barriers", "asked_mb", "us", "over_separate",
    "over_separate_fast_math", "status",
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

    def over(other: str) -> float:
        return float((facts.us(other, HDIM, **chosen) / facts.us(separate, HDIM, **chosen)).mean())

    fast = next((v.id for v in VERSIONS.values() if v.fast_math and v.variant_of == version), None)
    problem = evidence.shapes(version)[HDIM]
    check = evidence.check(version, problem)
    return {
        "version": version,
        "family": VERSIONS[version].family,
        "launches": facts.launches(version, HDIM, **chosen),
        "embedded": embedded(facts, version, HDIM),
        "sines": counted("event.sin", "event.cos", "event.sincos"),
        "powers": counted("event.pow"),
        "barriers": counted("barriers"),
        "asked_mb": SECTOR_BYTES * counted("global.read.sectors", "global.write.sectors") / 1e6,
        "us": float(facts.us(version, HDIM, **chosen).median()),
        "over_separate": over(version),
        "over_separate_fast_math": over(fast) if fast else None,
        "status": check.status if check else "",
    }


def work_table(frame: pd.DataFrame) -> Table:
    """The rows of `work`: versions by name alone, counts in millions."""

    def time(row: Any) -> str:
        fast = row.over_separate_fast_math
        return number(row.over_separate, "×") + (f"<br>{small(number(fast, '×'))}" if pd.notna(fast) else "")

    rows = [
        (
            link(row.version),
            f"{row.launches:.0f}",
            number(row.embedded, "×"),
            *(number(value / 1e6) if value else NOTHING for value in (row.sines, row.powers)),
            f"{row.barriers:,.0f}",
            f"{row.asked_mb:,.0f}",
            f"{row.us:.1f}",
            time(row),
        )
        for row in frame.itertuples()
    ]
    header = ("version", "launches", "embeds", "sin, cos, M", "powf, M", "barriers", "MB", "µs", "time")
    caption = (
        f"One call at head dim {HDIM}, 4 heads of 64 queries. Embeds: how often each element of Q and K is embedded. "
        "Sines and cosines, powers and barriers as the emulator counts them in the source's own terms; MB: all 32 B "
        "sectors that are asked for; launches by the plan. µs is device_warm; time is over separate kernels that load "
        "four floats (above 1: slower), below it that of a build with fast-math where this differs."
    )
    return Table(header, rows, numbers=header[1:], caption=caption)
