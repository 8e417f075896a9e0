"""How often every version embeds each element, and how fast it is."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..records.measured import Measured
from ..verdicts.measures import SCALAR, SEPARATE
from .style import COUNTED, PALETTE, Plot, canvas, measured_in, short

HEIGHT = 0.235  # inches of a bar
NAMES = {"sinusoidal": "Sinusoidal", "rope": "RoPE"}
LINE: dict[str, Any] = {"fontsize": 8, "color": "0.3", "va": "bottom", "ha": "center"}
PLAIN = {"fc": "white", "ec": "none", "pad": 0.3}


def fusion(evidence: Measured, frame: pd.DataFrame) -> Plot:
    """Speedup of every version over separate kernels that load four floats, by how often it embeds each element.

    `frame` is `fusion.work`, which has a row a version.
    """
    scalar = frame[frame["version"] == SCALAR]["speedup"]
    bars = frame[~frame["version"].isin((*SEPARATE.values(), SCALAR)) & ~frame["version"].str.endswith(("v1a", "v1b"))]
    bars = bars.sort_values(["family", "embedded"], ascending=[False, False], kind="stable").reset_index(drop=True)
    card = evidence.card.removeprefix("NVIDIA ")
    title = f"Times that each element is embedded, and speed, on the {card}"
    if _unpredicted(bars):
        title = f"Recomputing more does not mean running slower on the {card}"
    families = list(dict.fromkeys(bars["family"]))
    sizes = [int((bars["family"] == family).sum()) for family in families]
    with canvas(
        title, max(1, len(families)), height=1.3 + HEIGHT * sum(sizes), sharex=True,
        height_ratios=sizes or [1],
    ) as (figure, axes):  # fmt: skip
        for axis, family in zip(axes, families):
            mine = bars[bars["family"] == family]
            axis.barh(range(len(mine)), mine["speedup"], height=0.7, color=PALETTE[0 if family == "rope" else 2])
            for y, row in enumerate(mine.itertuples()):
                axis.text(row.speedup, y, f"  {row.speedup:.2f}×", va="center", fontsize=8.5, bbox=PLAIN)
            axis.set_yticks(
                range(len(mine)), [f"{short(row.version)}   {row.embedded:.3g}×" for row in mine.itertuples()]
            )
            axis.set_ylim(len(mine) - 0.5, -0.5)
            axis.set_title(
                f"{NAMES[family]}: version, and how often it embeds each element", loc="left", fontsize=9, pad=17
            )
            axis.axvline(1, color="0.2", lw=1)
            if family == "sinusoidal" and len(scalar):
                axis.axvline(scalar.iloc[0], color="0.2", lw=1, ls="--")
                axis.text(scalar.iloc[0], -0.55, "separate kernels, scalar loads", **LINE)
            axis.text(1, -0.55, "separate kernels, float4 loads", **LINE)
            axis.grid(visible=False)
        if len(bars):
            axes[-1].set_xlim(0, max(bars["speedup"].max(), 1) * 1.15)
        axes[-1].set_xlabel("speedup over separate kernels with float4 loads, head dim 2048", loc="left")
    return Plot(
        "fusion",
        figure,
        "Above 1 is faster than separate kernels with float4 loads. Sorted by how often a version embeds each element "
        "of Q and K, where once would do. V6b and V7 rotate the published 128 dims, the other RoPE versions all.",
        "Bar chart. "
        + "; ".join(f"{row.version}: {row.embedded:.3g} times, {row.speedup:.2f}×" for row in bars.itertuples())
        + ".",
        frame,
        measured_in(evidence) + COUNTED,
    )


def _unpredicted(bars: pd.DataFrame) -> bool:
    """Whether the version that embeds most often is faster than one that does so least among the fused ones."""
    fused = bars[bars["embedded"] > 1]
    if len(fused) < 2:
        return False
    most = fused[fused["embedded"] == fused["embedded"].max()]["speedup"].max()
    return bool(most > fused.loc[fused["embedded"].idxmin(), "speedup"])
