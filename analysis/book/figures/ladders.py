"""Every version of a family in the order of the log."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn as sns

from ...records import published
from ...records.interval import TIE
from ...records.measured import Measured, baseline_of
from ..style import MARKERS, WRONG, Plot, canvas, legend, log_ticks, measured_in, published_on, short
from .speedups import describe, speedup_rows


def ladder(evidence: Measured, family: str) -> Plot:
    """Every version of a family in the order of the log: its speedup over its baseline, published and measured."""
    versions = [version for version in evidence.versions(family) if baseline_of(version)]
    rows = [
        row
        for version in versions
        for row in speedup_rows(evidence, version, list(evidence.shapes(version).values()), baseline_of(version))
        if row["series"] in ("published", "device_warm")
    ]
    frame = pd.DataFrame(rows)
    measured = frame[frame["series"] == "device_warm"]
    right = measured[measured["status"] == "ok"]
    winners = [v for v in versions if (right[right["version"] == v]["speedup"] > TIE).any()]
    names = f": {', '.join(short(version) for version in winners)}" if 0 < len(winners) <= 3 else ""
    title = (
        f"{len(winners) or 'None'} of {len(versions)} versions {'is' if len(winners) < 2 else 'are'} right and, on the "
        f"device, faster than the baseline at some head dim{names}"
    )
    dims = sorted(set(frame["hdim"]))
    shades = sns.color_palette("viridis", len(dims))
    with canvas(title, height=1.6 + 0.36 * len(versions)) as (figure, (axis,)):
        axis.axvline(1, color="0.2", lw=1)
        for place, size in enumerate(dims):
            style: dict[str, Any] = {"color": shades[place], "marker": MARKERS[place % len(MARKERS)], "ls": ""}
            for series, shift in (("published", 0.2), ("device_warm", -0.2)):
                mine = frame[(frame["hdim"] == size) & (frame["series"] == series)]
                y = [versions.index(version) + shift for version in mine["version"]]
                open_marks = {"markerfacecolor": "white"} if series == "published" else {"label": f"head dim {size}"}
                axis.plot(mine["speedup"], y, ms=5.5, zorder=3, **style, **open_marks)
                if series == "device_warm":
                    wrong = [(x, at) for x, at, found in zip(mine["speedup"], y, mine["status"]) if found == "wrong"]
                    if wrong:
                        axis.plot(*zip(*wrong), **{**WRONG, "ms": 7})
        for row, version in enumerate(versions):
            shapes = evidence.shapes(version)
            refused = [d for d, p in shapes.items() if (c := evidence.check(version, p)) and c.status == "infeasible"]
            if refused:
                where = "at every head dim" if len(refused) == len(shapes) else f"at {', '.join(map(str, refused))}"
                axis.annotate(
                    f"infeasible {where}", (1, row), (-2, -1), ("axes fraction", "data"), "offset points", zorder=2,
                    fontsize=7, color="0.35", ha="right", va="center", bbox={"color": "white", "pad": 0.5},
                )  # fmt: skip
        axis.set_yticks(range(len(versions)), [short(version) for version in versions])
        axis.set_ylim(len(versions) - 0.5, -0.5)
        axis.grid(visible=True, axis="y", color="0.93")
        log_ticks(axis, "x", frame["speedup"].min(), frame["speedup"].max(), "×")
        axis.set_xlabel("speedup over the baseline")
        for label, face in (("published", "white"), ("measured", "0.3")):
            axis.plot([], [], ls="", marker="o", color="0.3", markerfacecolor=face, label=label)
        legend(figure, [axis], columns=3)
    bases = ", ".join(dict.fromkeys(baseline_of(version) for version in versions))
    return Plot(
        f"{family}-ladder",
        figure,
        f"Speedup over the baseline ({bases}) by head dim, above 1: faster. Open marks are published on the "
        f"{published.card(family)}, filled ones measured on the {evidence.card} (device_warm).",
        describe(frame),
        frame,
        published_on(family) + measured_in(evidence),
    )
