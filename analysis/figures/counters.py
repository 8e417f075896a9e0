"""Hardware counters: stall reasons of warps."""

from typing import Any

import pandas as pd

from ..evidence import Evidence, counters_of
from ..findings.answer import WAITS as REASONS
from ..findings.answer import longest_at_barrier, stalls
from ..studies import MAIN
from ..tables.table import family_title, missing, short
from .style import FUSED, WAITS, Plot, canvas, legend

COLOURS = ("0.15", "0.45", "0.6", "0.75", FUSED, WAITS, "0.9")
HATCHES = ("", "", "xxx", "...", "///", "", "")


def warp_waits(e: Evidence) -> Plot | str:
    """Stall reasons of a warp in every version's attention at the main head dim, as shares of its time."""

    frame = stalls(e)
    if frame.empty:
        return missing(command="make counters")
    wide = frame.pivot_table(index=["family", "version"], columns="wait", values="percent", sort=False)
    families = list(dict.fromkeys(frame["family"]))
    sizes = [len(wide.loc[family]) for family in families]
    most, all = longest_at_barrier(frame)
    title, height = f"In {most} of {all} versions warps wait most at a barrier", 2.4 + 0.15 * len(wide)
    with canvas(title, len(families), height=height, sharex=True, height_ratios=sizes) as (figure, axes):
        for axis, family in zip(axes, families):
            bars = wide.loc[family]
            left = pd.Series(0.0, index=bars.index)
            for wait, colour, hatch in zip(REASONS, COLOURS, HATCHES):
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
        "counters, in groups. Nsight's names: selected, wait, no instruction, short scoreboard, long scoreboard, "
        "barrier.",
        f"Stacked bars, one a version, of what a warp waits for at head dim {MAIN.hdim}, in percent.",
        frame,
        counters_of(e, e.record.frame("counters").query("study == 'log'")["run"]),
        true_of=e.card,
    )
