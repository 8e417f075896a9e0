"""How often every version embeds each element, and how fast it is."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..evidence import Evidence
from ..evidence.origin import COUNTED, measured
from ..models.moves import SCALAR, SEPARATE
from ..tables.table import family_title, short
from .style import PALETTE, Plot, canvas

LINE: dict[str, Any] = {"fontsize": 8, "color": "0.3", "va": "bottom", "ha": "center"}
PLAIN = {"fc": "white", "ec": "none", "pad": 0.3}


def fusion(e: Evidence, frame: pd.DataFrame) -> Plot:
    """Speedup of every version over separate kernels that load four floats, by how often it embeds each element.

    `frame` is `fusion.work`, which has a row a version.
    """
    scalar = frame[frame["version"] == SCALAR]["speedup"]
    bars = frame[~frame["version"].isin((*SEPARATE.values(), SCALAR)) & ~frame["version"].str.endswith(("v1a", "v1b"))]
    bars = bars.sort_values(["family", "embedded"], ascending=[False, False], kind="stable").reset_index(drop=True)
    families = list(dict.fromkeys(bars["family"]))
    sizes = [int((bars["family"] == family).sum()) for family in families] or [1]
    title, height = "Recomputing more does not mean running slower", 1.3 + 0.235 * len(bars)
    with canvas(title, len(sizes), height=height, sharex=True, height_ratios=sizes) as (figure, axes):
        for axis, family in zip(axes, families):
            mine = bars[bars["family"] == family]
            axis.barh(range(len(mine)), mine["speedup"], height=0.7, color=PALETTE[0 if family == "rope" else 2])
            for y, value in enumerate(mine["speedup"]):
                axis.text(value, y, f"  {value:.2f}×", va="center", fontsize=8.5, bbox=PLAIN)
            names = [f"{short(row.version)}   {row.embedded:.3g}×" for row in mine.itertuples()]
            axis.set_yticks(range(len(mine)), names)
            axis.set_ylim(len(mine) - 0.5, -0.5)
            what = f"{family_title(family)}: version, and how often it embeds each element"
            axis.set_title(what, loc="left", fontsize=9, pad=17)
            axis.axvline(1, color="0.2", lw=1)
            if family == "sinusoidal" and len(scalar):
                axis.axvline(scalar.iloc[0], color="0.2", lw=1, ls="--")
                axis.text(scalar.iloc[0], -0.55, "separate kernels, scalar loads", **LINE)
            axis.text(1, -0.55, "separate kernels, float4 loads", **LINE)
            axis.grid(visible=False)
        axes[-1].set_xlim(0, max([*bars["speedup"], 1]) * 1.15)
        axes[-1].set_xlabel("speedup over separate kernels with float4 loads, head dim 2048", loc="left")
    return Plot(
        "fusion",
        figure,
        "Above 1 is faster than separate kernels with float4 loads. Sorted by how often a version embeds each element "
        "of Q and K, where once would do. V6b and V7 rotate the published 128 dims, the other RoPE versions all.",
        "Bars of the speedup of each version, sorted by how often it embeds each element.",
        frame,
        measured(e, "log") + COUNTED,
    )
