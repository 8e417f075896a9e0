"""What the emulator counts in PTX beside what the hardware counts in machine code, launch by launch.

The emulator runs on any machine and for any target; how near it comes to the counters of one card says what it may
stand for on cards that are not at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from kernels import VERSIONS

from ..evidence.current import outdated
from ..record.files import with_problems
from .profiles import LANES
from .roofline import SECTOR_BYTES, counts

NEAR, CLOSE = 0.01, 0.10  # agreement: within 1 %, within 10 %
MUFU = tuple(f"inst.mufu.{name}" for name in ("sin", "cos", "ex2", "lg2", "rcp", "rsqrt", "sqrt", "tanh"))
OWN = "sectors read that the launch itself writes"


class Quantity(NamedTuple):
    """One thing counted by both: weighted sums of columns of `profiles.launches` and of the emulator's counters."""

    name: str
    hardware: Mapping[str, float]
    emulator: Mapping[str, float]
    why: str


QUANTITIES = (
    Quantity("sectors stored", {"l1_store_sectors": 1}, {"global.write.sectors": 1}, ""),
    Quantity(
        "sectors loaded",
        {"l1_load_sectors": 1},
        {"global.read.sectors": 1},
        "Of a 128-bit load whose every other value is never used, ptxas makes two 32-bit loads; each asks for all the "
        "sectors again.",
    ),
    Quantity(
        "sectors from DRAM",
        {"dram_read_bytes_cold": 1 / SECTOR_BYTES},
        {"global.unique_sectors.read": 1, OWN: -1},
        "With caches flushed. The emulator's are the distinct sectors of a launch but for those that it writes itself. "
        "The card also reads the code, and arrays of a thread that overflow L2; register tiling reads its output "
        "before it writes it.",
    ),
    Quantity(
        "FLOP",
        {"ffma": 2, "fadd": 1, "fmul": 1},
        {"inst.fma": 2, "inst.fp32": 1},
        "In machine code a sine begins with a multiplication, and a division or a square root is a sequence; in PTX it "
        "is one instruction. Comparisons and maxima are counted in PTX alone.",
    ),
    Quantity(
        "fused multiply-adds",
        {"ffma": 1},
        {"inst.fma": 1},
        "ptxas fuses a multiplication and an addition that PTX has apart; the FLOP stay the same.",
    ),
    Quantity(
        "instructions of a warp",
        {"warp_instructions": 1},
        {"warp_inst": 1},
        "Addresses, loops and divisions take more machine instructions than PTX.",
    ),
    Quantity(
        "integer instructions",
        {"integer": 1},
        {"inst.int": 1},
        "Addresses of 64 bits take two registers; an integer division is a sequence.",
    ),
    Quantity(
        "special functions",
        {"special": 1},
        dict.fromkeys(MUFU, 1),
        "Divisions, of floats and of integers, and conversions run on the same unit; PTX has instructions of their own "
        "for them.",
    ),
    Quantity("tensor-core instructions", {"tensor_pipe": 1, "tensor_pipe_hfma2": -1}, {"inst.mma": 1 / LANES}, ""),
    Quantity(
        "accesses to shared memory",
        {"shared_loads": 1, "shared_stores": 1, "shared_atomics": 1},
        {"shared.requests": 1},
        "ptxas joins neighbouring loads; an atomic maximum is a loop that tries until it succeeds.",
    ),
    Quantity(
        "wavefronts of shared memory",
        {"shared_wavefronts": 1},
        {"shared.wavefronts": 1, "inst.shfl": 1 / LANES},
        "Shuffles, which use the same path, are added to the emulator's. The rest is wide loads: which lanes share a "
        "cycle is the card's own rule, and ptxas joins neighbouring loads into wider ones.",
    ),
)


def counted_launches(counted: pd.DataFrame | None = None) -> pd.DataFrame:
    """data/counts.csv by version, problem and launch, with a column a counter: 0 where it counted nothing."""
    counted = counts() if counted is None else counted
    counted = with_problems(counted[counted["version"].isin(VERSIONS)])
    keys = ["version", "problem", "launch"]
    wide = counted.pivot_table(index=keys, columns="counter", values="value", sort=False).fillna(0.0)
    stale = counted.assign(stale=outdated(counted)).groupby(keys, sort=False)["stale"].first()
    return wide.assign(**{OWN: _own(wide)}, stale=stale)


def _own(wide: pd.DataFrame) -> pd.Series:
    """The distinct sectors of buffers that a launch both reads and writes: those reads find its own writes in L2."""
    prefix = "global.write.sectors."
    both = pd.Series(False, index=wide.index)
    for name in wide:
        read = name.replace("write", "read")
        if name.startswith(prefix) and read in wide:
            both |= (wide[name] > 0) & (wide[read] > 0)
    return wide["global.unique_sectors.write"].where(both, 0.0)


def compare(profiled: pd.DataFrame, counted: pd.DataFrame) -> pd.DataFrame:
    """A row a launch and quantity that both count: `hardware`, `emulator` and their `ratio`.

    A quantity that the emulator finds none of in a launch has no row there.
    """
    counted = counted.rename(columns={"stale": "stale_count"})
    joined = profiled.set_index(["version", "problem", "launch"]).join(counted, how="inner")
    frames = []
    for quantity in QUANTITIES:
        sums = pd.DataFrame(
            {
                "quantity": quantity.name,
                "hardware": _weighted(joined, quantity.hardware),
                "emulator": _weighted(joined, quantity.emulator),
                "stale": joined["stale"] | joined["stale_count"],
                "run": joined["run"],
            }
        )
        frames.append(sums[(sums["emulator"] > 0) & sums["hardware"].notna()])
    frame = pd.concat(frames).reset_index()
    problems = frame.pop("problem")
    frame.insert(1, "family", [problem.family for problem in problems])
    for name in ("hdim", "rotary_dim", "heads", "seq_q"):
        frame.insert(frame.columns.get_loc("launch"), name, [getattr(problem, name) for problem in problems])
    return frame.assign(ratio=frame["hardware"] / frame["emulator"])


def _weighted(frame: pd.DataFrame, weights: Mapping[str, float]) -> pd.Series:
    """A weighted sum of columns: a missing column counts as zero; NaN where a value is not recorded."""
    chosen = pd.Series({name: weight for name, weight in weights.items() if name in frame}, dtype=float)
    return frame[chosen.index].mul(chosen).sum(axis="columns", skipna=False)


def agreement(compared: pd.DataFrame) -> pd.DataFrame:
    """A row a quantity: launches, median ratio, its 5th and 95th percentile, and the shares that are near and close."""
    ratios = compared.assign(away=(compared["ratio"] - 1).abs()).groupby("quantity", sort=False)
    found = ratios.agg(
        launches=("ratio", "size"),
        median=("ratio", "median"),
        low=("ratio", lambda ratio: ratio.quantile(0.05)),
        high=("ratio", lambda ratio: ratio.quantile(0.95)),
        near=("away", lambda away: (away <= NEAR).mean()),
        close=("away", lambda away: (away <= CLOSE).mean()),
    )
    return found.reset_index().assign(why=lambda frame: frame["quantity"].map({q.name: q.why for q in QUANTITIES}))
