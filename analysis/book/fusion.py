"""Why one embedding fused and the other did not: what each version does and takes, on one scale for both."""

from __future__ import annotations

from typing import Any

import pandas as pd

from kernels import VERSIONS
from kernels.fast_math import SUFFIX

from ..records.interval import TIE
from ..records.measured import Measured
from ..records.text import number
from ..verdicts.argument import Argument, Findings, Item, collect, speed
from ..verdicts.facts import Facts
from ..verdicts.rule import Undecided
from .tables import NOTHING, Table, link, small

HDIM = 2048
SECTOR_BYTES = 32
SEPARATE = {"sinusoidal": "sinusoidal_separate_float4", "rope": "rope_separate"}
SCALAR = "sinusoidal_separate_scalar"
PARTIAL = ("rope_v6b", "rope_v7")  # published with partial rotation; the others rotate every dim
COLUMNS = (
    "version", "family", "launches", "embedded", "sines", "powers", "barriers", "asked_mb", "us", "over_separate",
    "over_separate_fast_math", "status",
)  # fmt: skip

FUSION: dict[str, Argument] = {}
argued = collect(FUSION)


# ---------------------------------------------------------------- what each version does


def rotary(version: str) -> dict[str, Any]:
    """What picks the problem of a version as it was published."""
    if VERSIONS[version].family != "rope":
        return {}
    return {"rotary": "partial" if version.removesuffix(SUFFIX) in PARTIAL else "full"}


def embedded(facts: Facts, version: str, hdim: int = HDIM) -> float:
    """How often a version embeds each element of Q and K, where once would do.

    RoPE by its rotations. Sinusoidal embeddings by the sines and cosines computed, one an element; where they come
    from tables by the additions beyond those of the separate kernels that load alike.
    """
    chosen = rotary(version)
    separate = SEPARATE[VERSIONS[version].family]
    if VERSIONS[version].family == "rope":
        done, once = (facts.count(each, "event.rotation", hdim, **chosen) for each in (version, separate))
        return done / once
    rows = facts.size(version, "seq_q", hdim) + facts.size(version, "seq_k", hdim)
    elements = facts.size(version, "heads", hdim) * rows * hdim
    computed = sum(facts.count(version, f"event.{each}", hdim) for each in ("sin", "cos", "sincos"))
    if computed:
        return computed / elements
    alike = SCALAR if version in ("sinusoidal_v1", SCALAR) else separate
    added = facts.count(version, "inst.fp32", hdim) - facts.count(alike, "inst.fp32", hdim)
    return 1 + added / elements


def work(evidence: Measured, facts: Facts) -> pd.DataFrame:
    """What every version that embeds does and takes at head dim 2048, in the order of the log."""
    rows = []
    for family, separate in SEPARATE.items():
        for version in evidence.versions(family):
            if not version.endswith(SUFFIX):
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

    twin = version + SUFFIX
    problem = evidence.shapes(version)[HDIM]
    check = evidence.check(version, problem)
    return {
        "version": version,
        "family": VERSIONS[version].family,
        "launches": facts.launches(version, HDIM, **chosen),
        "embedded": embedded(facts, version),
        "sines": counted("event.sin", "event.cos", "event.sincos"),
        "powers": counted("event.pow"),
        "barriers": counted("barriers"),
        "asked_mb": SECTOR_BYTES * counted("global.read.sectors", "global.write.sectors") / 1e6,
        "us": float(facts.us(version, HDIM, **chosen).median()),
        "over_separate": over(version),
        "over_separate_fast_math": over(twin) if twin in VERSIONS else None,
        "status": check.status if check else "",
    }


def work_table(frame: pd.DataFrame) -> Table:
    """The rows of `work`: versions by name alone, counts in millions."""

    def time(row: Any) -> str:
        twin = row.over_separate_fast_math
        return number(row.over_separate, "×") + (f"<br>{small(number(twin, '×'))}" if pd.notna(twin) else "")

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


# ---------------------------------------------------------------- what follows


@argued(
    "Was it the redundancy?",
    dims=(512, 2048),
    claims=("B-19", "C-17", "C-23"),
    needs=("sinusoidal", "rope", "least"),
    items={
        "sinusoidal": Item(
            "embeddings that sinusoidal V5 computes for each element",
            lambda f, d: embedded(f, "sinusoidal_v5", d),
            "times",
        ),
        "rope": Item("rotations of each element by RoPE V4", lambda f, d: embedded(f, "rope_v4", d), "times"),
        "least": Item("rotations of each element by RoPE V3", lambda f, d: embedded(f, "rope_v3", d), "times"),
        "sinusoidal_time": Item(
            "V5 over separate kernels with float4 loads", speed("sinusoidal_v5", "sinusoidal_separate_float4")
        ),
        "rope_time": Item("RoPE V4 over separate kernels", speed("rope_v4", "rope_separate", rotary="full")),
        "least_time": Item("RoPE V3 over separate kernels", speed("rope_v3", "rope_separate", rotary="full")),
    },
    because=(
        "The sinusoidal kernel that fused, V5, embeds each element {sinusoidal}; RoPE V4 does {rope}, V3 {least}.",
        "Beside separate kernels that load alike V5 {sinusoidal_time:as} them, RoPE V4 {rope_time:as} them, and V3, "
        "with the fewest rotations, {least_time:as} them.",
    ),
)
def redundancy(found: Findings) -> str:
    most = max(value.value for value in found["rope"].values.values())
    more = found["sinusoidal"].above(most)
    return "No: what fused computes more again than what did not" if more else "It may be: what fused computes less"


@argued(
    "Was it the baseline?",
    dims=(512, 2048),
    claims=("B-07", "B-08", "C-23"),
    needs=("scalar", "float4", "rope"),
    items={
        "scalar": Item(
            "sinusoidal V5 over separate kernels that load one float",
            speed("sinusoidal_v5", SCALAR),
        ),
        "float4": Item(
            "sinusoidal V5 over separate kernels that load four",
            speed("sinusoidal_v5", "sinusoidal_separate_float4"),
        ),
        "rope": Item(
            "RoPE V4 over separate kernels, which load four", speed("rope_v4", "rope_separate", rotary="full")
        ),
        "crossed": Item(
            "RoPE V4 over the sinusoidal separate kernels that load one",
            lambda f, d: f.us(SCALAR, d) / f.us("rope_v4", d, rotary="full"),
        ),
    },
    because=(
        "Sinusoidal V5 {scalar:as} kernels that load one float at a time, its baseline, and {float4:as} kernels that "
        "load four, as it does. RoPE's baseline loads four: V4 {rope:as} it.",
        "Beside the baseline of the sinusoidal kernel, RoPE V4 {crossed:as} it.",
    ),
)
def baselines(found: Findings) -> str:
    fused, alike, rope = found["scalar"], found["float4"], found["rope"]
    if fused.above(TIE) and alike.below(1) and rope.below(1):
        return "Yes: neither wins against kernels that load as it does"
    return "No: it wins against kernels that load alike, too" if alike.above(1) else "Not at every head dim"


@argued(
    "How much could fusion save?",
    dims=(512, 2048, 4096, 8192),
    claims=("B-15", "B-20", "C-19"),
    needs=("alone", "alone_rope"),
    items={
        "alone": Item(
            "attention alone, of the time of separate sinusoidal kernels",
            lambda f, d: 100 * f.us("attention_online_fixed", d) / f.us("sinusoidal_separate_float4", d),
            "%",
        ),
        "alone_rope": Item(
            "attention alone, of the time of separate RoPE kernels",
            lambda f, d: 100 * f.us("attention_online_fixed", d) / f.us("rope_separate", d, rotary="partial"),
            "%",
        ),
        "us": Item(
            "what embedding adds, sinusoidal",
            lambda f, d: f.us("sinusoidal_separate_float4", d) - f.us("attention_online_fixed", d),
            "µs",
        ),
        "us_rope": Item(
            "what embedding adds, RoPE",
            lambda f, d: f.us("rope_separate", d, rotary="partial") - f.us("attention_online_fixed", d),
            "µs",
        ),
        "hybrid": Item(
            "what the sinusoidal hybrid saves",
            lambda f, d: f.us("sinusoidal_separate_float4", d) - f.us("sinusoidal_hybrid_v1", d),
            "µs",
        ),
        "launch": Item("an empty launch from the host", lambda f, d: f.ceiling("empty_launch_us"), "µs", dims=(512,)),
    },
    because=(
        "Attention alone takes {alone} of the time of separate sinusoidal kernels and {alone_rope} of RoPE's: "
        "embedding adds {us} and {us_rope} to a call on the device.",
        "The sinusoidal hybrid saves {hybrid}; what is more than embedding costs is its loop's, not fusion's.",
        "With launches timed each kernel costs the host {launch} besides.",
    ),
)
def saving(found: Findings) -> str:
    alone = [value.value for key in ("alone", "alone_rope") for value in found[key].values.values()]
    return f"At most {number(max(0.0, 100 - min(alone)), '%')} of the time on the device"
