"""How often every version embeds each element, and what that costs."""

from __future__ import annotations

import pandas as pd

from ...records.measured import Measured
from ...records.text import factor
from ..style import COUNTED, PALETTE, Plot, canvas, legend, log_ticks, mark_wrong, measured_in, short


def fusion(evidence: Measured, frame: pd.DataFrame) -> Plot:
    """How often every version embeds each element, and its time over separate kernels that load four floats.

    `frame` is `fusion.work`, which has a row a version.
    """
    frame = frame[~frame["version"].isin(("rope_separate", "sinusoidal_separate_float4"))]
    scalar = frame[frame["version"] == "sinusoidal_separate_scalar"]["over_separate"]
    frame = frame[~frame["version"].str.contains("_separate_") & (frame["version"] != "rope_v1a")]
    of = frame.set_index("version")
    fused, turned = of.loc["sinusoidal_v5"], of.loc["rope_v4"]
    title = (
        f"Sinusoidal V5 embeds an element {fused['embedded']:.0f} times and takes {factor(fused['over_separate'])} as "
        f"long as separate kernels ({factor(fused['over_separate'] / scalar.iloc[0])} for scalar ones); RoPE V4 embeds "
        f"{turned['embedded']:.0f} times and takes {factor(turned['over_separate'])}"
    )
    families = list(dict.fromkeys(frame["family"]))
    sizes = [int((frame["family"] == family).sum()) for family in families]
    builds = {"over_separate": "accurate functions", "over_separate_fast_math": "fast-math, where it differs"}
    with canvas(title, rows=2, height=6.4, sharex=True, height_ratios=sizes) as (figure, axes):
        for axis, family in zip(axes, families):
            mine = frame[frame["family"] == family].sort_values("embedded", kind="stable")
            axis.axvline(1, color="0.2", lw=1, label="separate kernels, float4 loads")
            if family == "sinusoidal":
                axis.axvline(scalar.iloc[0], color="0.2", lw=1, ls="--", label="separate kernels, scalar loads")
            for (column, label), face in zip(builds.items(), (PALETTE[0], "white")):
                places = range(len(mine))
                axis.plot(mine[column], places, ls="", marker="o", color=PALETTE[0], markerfacecolor=face, label=label)
            mark_wrong(axis, list(mine["over_separate"]), pd.Series(range(len(mine))), mine["status"])
            names = [f"{short(row.version)}   {row.embedded:.3g}×" for row in mine.itertuples()]
            axis.set_yticks(range(len(mine)), names)
            axis.set_ylim(len(mine) - 0.5, -0.5)
            axis.grid(visible=True, axis="y", color="0.93")
            axis.set_title({"rope": "RoPE"}.get(family, family.capitalize()), loc="left")
        drawn = frame[list(builds)].stack()
        axes[-1].set_xlim(min(drawn.min(), 1) / 1.15, drawn.max() * 1.15)
        log_ticks(axes[-1], "x", 1, 10, "×")
        axes[-1].set_xlabel("time over separate kernels with float4 loads")
        legend(figure, axes)
    return Plot(
        "fusion",
        figure,
        f"Head dim 2048, 4 heads of 64 queries, device_warm on the {evidence.card}. Beside each name how often "
        "the version embeds each element of Q and K, where once would do, counted by the emulator. Left of a line: "
        "faster than those separate kernels. V6b and V7 rotate the published part of the dims, the other RoPE versions "
        "all, and each is compared with separate kernels that rotate as many.",
        "Dot plot. "
        + "; ".join(
            f"{row.version}: each element {row.embedded:.3g} times, {row.over_separate:.2f} times as long as separate"
            for row in frame.itertuples()
        )
        + f". Scalar separate kernels: {scalar.iloc[0]:.2f} times as long.",
        frame,
        measured_in(evidence) + COUNTED,
    )
