"""What a warp waits for, by what Nsight Compute read in the last launch of a call, its attention."""

from collections.abc import Mapping

from kernels import VERSIONS

from ..evidence import Evidence
from ..measure.studies import STALL, STALLS
from ..record.published import main_problems

SECTOR_BYTES = 32
BUSY = 60.0  # % of its peak at which a unit, and not latency, holds a kernel back: the rule of Nsight Compute
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


def waits(e: Evidence, hdim: int) -> dict[str, dict[str, float]]:
    """By version of the log, the share of its time, from 0 to 1, that a warp spends on each of `WAITS` at a head dim.

    Of RoPE with the least rotary dim, as published. Versions without counters are left out.
    """
    found = {}
    for version in VERSIONS:
        groups = e.record.counters.get(version, {})
        of_log = [p for p, rows in groups.items() if p.hdim == hdim and "log" in set(rows["study"])]
        for problem in main_problems(of_log)[:1]:
            rows = groups[problem]
            last = rows[rows["launch"] == rows["launch"].max()].set_index("metric")["value"]
            found[version] = shares({reason: last.get(STALL.format(reason), 0.0) for reason in STALLS})
    return found


def shares(stalls: Mapping[str, float]) -> dict[str, float]:
    """Of how long a warp waits for each reason the share of each of `WAITS`; a GPU may lack some reasons."""
    total = sum(stalls.values())
    return {name: sum(stalls[each] for each in reasons) / total for name, reasons in WAITS.items()}
