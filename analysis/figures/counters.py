"""Hardware counters: stall reasons of warps."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from kernels import VERSIONS

from ..evidence import Evidence, counters_of
from ..studies import MAIN, STALLS
from ..tables.table import Missing, family_title, short
from .style import PALETTE, Plot, canvas, legend

BARRIER = "other warps at a barrier"
WAITS = {  # the reasons for which a warp does not issue, under headings; a GPU may lack some
    "nothing: it issues, or could": ("selected", "not_selected"),
    "its last result, or a unit": ("wait", "dispatch_stall", "math_pipe_throttle"),
    "its next instruction": ("no_instruction", "branch_resolving", "imc_miss"),
    "shared memory, special functions": ("short_scoreboard", "mio_throttle"),
    "global or local memory": ("long_scoreboard", "lg_throttle", "tex_throttle", "drain", "membar"),
    BARRIER: ("barrier",),
    "something else": ("sleeping", "misc"),
}
COLOURS = ("0.15", *(PALETTE[i] for i in (2, 8, 4, 0, 1)), "0.8")
HATCHES = ("", "...", "xxx", "\\\\\\", "///", "", "")


def warp_waits(e: Evidence) -> Plot | Missing:
    """Stall reasons of a warp in every version's attention at the main head dim, as shares of its time."""

    def share(version: str, reasons: Iterable[str]) -> float:
        return e.stalled(version, *reasons, hdim=MAIN.hdim)[MAIN.hdim].value

    frame = pd.DataFrame(
        {"version": version.id, "family": version.family, "wait": wait, "percent": 100 * share(version.id, reasons)}
        for version in VERSIONS.values()
        if version.of_log and not version.fast_math and share(version.id, STALLS) == 1
        for wait, reasons in WAITS.items()
    ).fillna(0.0)
    if frame.empty:
        return Missing("make counters")
    wide = frame.pivot_table(index=["family", "version"], columns="wait", values="percent", sort=False)
    families = list(dict.fromkeys(frame["family"]))
    sizes = [len(wide.loc[family]) for family in families]
    most = int((wide.idxmax(axis="columns") == BARRIER).sum())
    title, height = f"In {most} of {len(wide)} versions warps wait most at a barrier", 2.9 + 0.17 * len(wide)
    with canvas(title, len(families), height=height, sharex=True, height_ratios=sizes) as (figure, axes):
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
