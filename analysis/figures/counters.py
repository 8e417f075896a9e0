"""What the hardware counters show: what warps wait for, and how near the emulator's counts come."""

from typing import Any

import pandas as pd

from kernels import VERSIONS

from ..evidence import Evidence
from ..evidence.origin import counters_of
from ..measure.studies import MAIN
from ..models.profiles import BARRIER, WAITS, waits
from ..tables.table import Missing, family_title, short
from .style import NARROW, PALETTE, Plot, canvas, legend

COLOURS = ("0.15", *(PALETTE[i] for i in (2, 8, 4, 0, 1)), "0.8")
HATCHES = ("", "...", "xxx", "\\\\\\", "///", "", "")


def warp_waits(e: Evidence) -> Plot | Missing:
    """What a warp of every version's attention waits for at the main head dim, as shares of its time."""
    mine = waits(e, MAIN.hdim)
    if not mine:
        return Missing("make counters")
    frame = pd.DataFrame(
        {"version": version, "family": VERSIONS[version].family, "wait": wait, "percent": 100 * share}
        for version, shares in mine.items()
        if not VERSIONS[version].fast_math
        for wait, share in shares.items()
    )
    wide = frame.pivot_table(index=["family", "version"], columns="wait", values="percent", sort=False)
    families = list(dict.fromkeys(frame["family"]))
    sizes = [len(wide.loc[family]) for family in families]
    most = int((wide.idxmax(axis="columns") == BARRIER).sum())
    title, height = f"In {most} of {len(wide)} versions warps wait most at a barrier", 2.9 + 0.17 * len(wide)
    with canvas(title, len(families), height=height, width=NARROW, sharex=True, height_ratios=sizes) as (figure, axes):
        for axis, family in zip(axes, families):
            bars = wide.loc[family]
            left = pd.Series(0.0, index=bars.index)
            for wait, colour, hatch in zip(WAITS, COLOURS, HATCHES):
                if not wide[wait].any():
                    continue
                look: dict[str, Any] = {"color": colour, "hatch": hatch, "label": wait}
                axis.barh(range(len(bars)), bars[wait], 0.8, left=left, edgecolor="white", lw=0.3, **look)
                left += bars[wait]
            axis.set_yticks(range(len(bars)), [short(version) for version in bars.index], fontsize=8)
            axis.set_ylim(len(bars) - 0.4, -0.6)
            axis.set_xlim(0, 100)
            axis.grid(visible=False)
            axis.set_title(family_title(family), loc="left")
        axes[-1].set_xlabel("% of a warp's time in attention", loc="left")
        legend(figure, axes, size=8)
    return Plot(
        "warp-waits",
        figure,
        f"Issue-stall reasons of the attention kernel at head dim {MAIN.hdim} on the {e.card}, from hardware "
        "counters, in groups; a warp that is ready while another issues counts as one that could.",
        f"Stacked bars, one a version, of what a warp waits for at head dim {MAIN.hdim}, in percent.",
        frame,
        counters_of(e, e.record.frame("counters").query("study == 'log'")["run"]),
        true_of=e.card,
    )
