"""Every version of a family at one head dim, from left to right: published beside measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from kernels import VERSIONS

from ..evidence import Evidence
from ..evidence.known import NOT_MEASURED, OK, WRONG
from ..evidence.origin import measured, published_on
from ..measure.studies import MAIN
from ..record import published
from ..tables.table import family_title, short
from .style import PALETTE, Plot, canvas, legend, log_ticks
from .style import WRONG as CROSS

NAMES = ["version", "rotary_dim", "published", "measured", "low", "high", "loaded", "status"]
SOFT = "0.4"
MARKS: dict[str, dict[str, Any]] = {
    "published": {"marker": "o", "mfc": "white", "mec": "0.2"},
    "measured": {"marker": "o", "color": PALETTE[0]},
    "loaded": {"marker": "D", "color": PALETTE[1], "ms": 5.5},
}
TITLES = {  # the edition's
    "attention": "5 of 6 attention kernels beat the baseline, 2 with wrong results",
    "rope": "No published RoPE kernel beats separate kernels at the published shapes",
    "sinusoidal": "Of published sinusoidal kernels only Hybrid v1 beats separate float4 kernels",
}


def ladder(e: Evidence, family: str, hdim: int, over: str = "") -> Plot:
    """The versions of a family in the log's order: speedup over one baseline at a head dim, published and measured.

    `over` is the baseline, by default that of most versions. RoPE has V8 too, and the load of the authors' card.
    """
    versions = [version for version in VERSIONS.values() if version.family == family and version.of_log]
    over = over or str(pd.Series([version.baseline for version in versions if version.baseline]).mode().iloc[0])
    shown = [v.id for v in versions if v.baseline and v.id != over and not v.fast_math and not v.variant_of]
    shown += ["rope_v8"] if family == "rope" and e.study("beyond") else []
    frame = pd.DataFrame([_row(e, name, over, hdim) for name in shown], columns=NAMES)
    frame = frame.astype(dict.fromkeys(NAMES[1:-1], float))
    card = e.card.removeprefix("NVIDIA ")
    labels = (f"published, {published.card(family)}", f"measured, {card}, device", f"{card}, matched load")
    series = {name: label for name, label in zip(MARKS, labels) if frame[name].notna().any()}
    numbers = frame[[*series]].stack().dropna().tolist() or [1.0]
    names = [short(name) for name in shown]
    with canvas(TITLES.get(family, f"{family_title(family)} kernels"), height=3.4) as (figure, (axis,)):
        axis.axhline(1, color="0.2", lw=1)
        for place, row in enumerate(frame.to_dict("records")):
            _marks(axis, place, row, min(numbers) / 1.8)
        log_ticks(axis, "y", min(numbers), max(numbers), "×")
        axis.set_ylim(min(numbers) / 2, max(*numbers, 1) * 2.1)
        turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
        axis.set_xticks(range(len(names)), names, **(turned if max(map(len, names)) > 8 else {}))
        axis.set_xlim(-0.6, len(names) - 0.4)
        axis.set_ylabel("speedup")
        axis.set_xlabel(f"over {over}; head dim {hdim}{_shape(e, shown[0], hdim)}", loc="left", color=SOFT, fontsize=8)
        for name, label in series.items():
            axis.plot([], [], ls="", label=label, **MARKS[name])
        if (frame["status"] == WRONG).any():
            axis.plot([], [], **{**CROSS, "ms": 7})
        legend(figure, [axis], columns=2)
    part = frame[(frame["rotary_dim"] > 0) & (frame["rotary_dim"] < hdim)]
    base = e.study("log").shapes(over).get(hdim)
    return Plot(
        f"{family}-ladder-{hdim}",
        figure,
        f"Speedup over {over} at head dim {hdim}; above 1 is faster. Open marks: published; filled marks: measured on "
        "the device (device_warm)."
        + " Diamonds: more heads, so that an SM has as many blocks as on the authors' card." * ("loaded" in series)
        + f" {', '.join(map(short, part['version']))} rotate {MAIN.rotary_dim} dims, the others all." * bool(len(part))
        + f" The result of {over} is wrong here too."
        * bool(base and e.study("log").known(over, base).word == WRONG),
        f"Dot plot of the speedup of each version over {over} at head dim {hdim}, published and measured.",
        frame,
        measured(e, "log", *(("matched", "beyond") if family == "rope" else ())) + published_on(family),
    )


def _row(e: Evidence, name: str, over: str, hdim: int) -> tuple:
    study = e.study("beyond" if name == "rope_v8" else "log")
    problem = MAIN if name == "rope_v8" else study.shapes(name, refused=True).get(hdim)
    if problem is None:
        return (name, *(None,) * 6, NOT_MEASURED)
    said = published.speedup(name, over, problem)
    ratio = e.speedup(name, over, study.name, "device_warm", problem=problem)[problem]
    more = e.study("matched").shapes(name).get(hdim) if problem.family == "rope" and study.name == "log" else None
    loaded = e.speedup(name, over, "matched", "device_warm", problem=more)[more] if more else None
    numbers = (ratio.value, ratio.low, ratio.high, loaded.value if loaded else None)
    return (name, problem.rotary_dim, said and said.value, *numbers, study.known(name, problem).word)


def _marks(axis: Axes, place: int, row: Mapping[str, Any], low: float) -> None:
    """The marks of a version with their values; where it was not timed the word for why."""
    found = {name: row[name] for name in MARKS if row[name] == row[name]}
    least, most = min(found.values(), default=0.0), max(found.values(), default=0.0)
    if found:
        axis.plot([place, place], [least, most], color="0.8", lw=2, zorder=1)
    for name, value in found.items():
        axis.plot(place, value, **{"ms": 6.5, "ls": "", "zorder": 3, **MARKS[name]})
        where = {least: ((0, -6), "center", "top"), most: ((0, 6), "center", "bottom")}
        off, side, up = where.get(value, ((7, 0), "left", "center"))
        axis.annotate(
            f"{value:.2g}", (place, value), off, textcoords="offset points", ha=side, va=up, fontsize=8,
            color=MARKS[name].get("color", SOFT), bbox={"fc": "white", "ec": "none", "pad": 0.4},
        )  # fmt: skip
    if row["measured"] != row["measured"]:
        word = row["status"] if row["status"] not in (OK, WRONG) else NOT_MEASURED
        at = low if not found or least > 4 * low else most * 1.5
        axis.text(place, at, word, rotation=90, ha="center", va="bottom", fontsize=8, color=SOFT)
    elif row["status"] == WRONG:
        axis.plot(place, row["measured"], **{**CROSS, "ms": 7, "label": None})


def _shape(e: Evidence, name: str, hdim: int) -> str:
    problem = e.study("log").shapes(name, refused=True).get(hdim)
    return f", {problem.heads} head{'s' * (problem.heads > 1)}, {problem.seq_q} tokens" if problem else ""
