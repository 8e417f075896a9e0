"""How often every version embeds each element, and how fast it is."""

from __future__ import annotations

import pandas as pd

from ...records.measured import Measured
from ..style import COUNTED, FAMILIES, MARKERS, PALETTE, Plot, canvas, legend, log_ticks, measured_in, short


def fusion(evidence: Measured, frame: pd.DataFrame) -> Plot:
    """How often every version embeds each element, and its speed over separate kernels that load four floats.

    `frame` is `fusion.work`, which has a row a version.
    """
    frame = frame[~frame["version"].str.contains("_separate") & (frame["version"] != "rope_v1a")]
    frame = frame.assign(speed=1 / frame["over_separate"])
    of = frame.set_index("version")
    title = f"How often a version embeds, and its speed ({evidence.card})"
    if {"sinusoidal_v5", "rope_v3"} <= set(of.index):
        most, least = of.loc["sinusoidal_v5"], of.loc["rope_v3"]
        if most["embedded"] > least["embedded"] and most["speed"] > least["speed"]:
            title = f"Recomputation does not predict speed ({evidence.card})"
    with canvas(title, height=4.4) as (figure, (axis,)):
        axis.axhline(1, color="0.2", lw=1)
        axis.text(0.99, 1.02, "separate kernels", transform=axis.get_yaxis_transform(), ha="right", va="bottom", size=8)
        for place, family in enumerate(dict.fromkeys(frame["family"])):
            mine = frame[frame["family"] == family].sort_values(["embedded", "speed"])
            looks = {"color": PALETTE[place], "marker": MARKERS[place]}
            axis.plot(mine["embedded"], mine["speed"], ls="", label=FAMILIES.get(family, family), **looks)
            for number, row in enumerate(mine.itertuples()):
                aside = {"xytext": (5, 4 if number % 2 else -9), "textcoords": "offset points"}
                axis.annotate(short(row.version), (row.embedded, row.speed), fontsize=8, color=PALETTE[place], **aside)
        log_ticks(axis, "x", 1, 100, "×")
        log_ticks(axis, "y", 0.1, 2, "×")
        axis.set(xlim=(0.85, 160), ylim=(min(frame["speed"].min(), 1) / 1.3, max(frame["speed"].max(), 1) * 1.3))
        axis.set_xlabel("how often each element of Q and K is embedded")
        axis.set_ylabel("speed over separate kernels")
        legend(figure, [axis])
    return Plot(
        "fusion",
        figure,
        f"Head dim 2048, 4 heads of 64 queries, device_warm on the {evidence.card}, over separate kernels with float4 "
        "loads; above the line a version is faster. Embeddings are counted by the emulator; once would do. V6b and V7 "
        "rotate the published part of the dims and are compared with separate kernels that do the same.",
        "Dot plot. "
        + "; ".join(
            f"{row.version}: each element {row.embedded:.3g} times, {row.speed:.2f} times the speed"
            for row in frame.itertuples()
        )
        + ".",
        frame,
        f"times {measured_in(evidence)}; embeddings {COUNTED}",
    )
