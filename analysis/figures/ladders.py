"""Every version of a family at one head dim, from left to right: published beside measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from kernels import VERSIONS, Problem

from ..measure.studies import MAIN
from ..records import published
from ..records.interval import TIE, Ratio
from ..records.known import OK, WRONG, known
from ..records.measured import Measured
from ..records.text import factor
from ..tables.steps import ratio_over, stated
from .style import FAMILIES, PALETTE, Plot, canvas, legend, log_ticks, measured_in, published_on, short
from .style import WRONG as CROSS

NAMES = ["version", "rotary_dim", "published", "measured", "low", "high", "loaded", "status"]
SOFT, DEVICE = "0.4", PALETTE[0]
MARKS: dict[str, dict[str, Any]] = {
    "published": {"marker": "o", "mfc": "white", "mec": "0.2"},
    "measured": {"marker": "o", "color": DEVICE},
    "loaded": {"marker": "D", "color": PALETTE[1], "ms": 5.5},
}
INKS = {"published": SOFT, "measured": DEVICE, "loaded": PALETTE[1]}


def ladder(
    evidence: Measured,
    family: str,
    hdim: int,
    over: str = "",
    matched: Measured | None = None,
    beyond: Measured | None = None,
    fused: str = "rope_v8",
) -> Plot:
    """The versions of a family in the log's order: speedup over one baseline at a head dim, published and measured.

    `over` is the baseline, by default that of most versions; `matched` adds the load of the authors' card, `beyond` the
    version `fused`, where they were measured.
    """
    versions = [version for version in VERSIONS.values() if version.family == family and version.of_log]
    named = pd.Series([version.baseline for version in versions if version.baseline])
    over = over or str(named.mode().iloc[0])
    shown = [v.id for v in versions if v.baseline and v.id != over and not v.fast_math and not v.variant_of]
    rows = [_row(evidence, matched, name, over, hdim) for name in shown]
    if beyond:
        rows.append(_found(beyond, fused, over, MAIN, None))
    frame = pd.DataFrame(rows, columns=NAMES).astype(dict.fromkeys(NAMES[1:-1], float))
    series = [name for name in MARKS if frame[name].notna().any()]
    numbers = frame[series].stack()
    least, most = (numbers.min(), numbers.max()) if len(numbers) else (1.0, 1.0)
    card = evidence.card.removeprefix("NVIDIA ")
    title = _title(frame[frame["version"] != fused], family, over, card)
    with canvas(title, height=3.4) as (figure, (axis,)):
        axis.axhline(1, color="0.2", lw=1)
        for place, row in frame.iterrows():
            _marks(axis, int(str(place)), row, least / 1.8)
        log_ticks(axis, "y", least, most, "×")
        axis.set_ylim(least / 2, max(most, 1) * 2.1)
        axis.set_xticks(range(len(frame)), [short(name) for name in frame["version"]])
        if any(len(short(name)) > 8 for name in frame["version"]):
            axis.set_xticks(axis.get_xticks(), axis.get_xticklabels(), rotation=35, ha="right", rotation_mode="anchor")
        axis.set_xlim(-0.6, len(frame) - 0.4)
        axis.set_ylabel("speedup")
        axis.set_xlabel(
            f"over {over}; head dim {hdim}{_shape(evidence, shown, hdim)}", loc="left", color=SOFT, fontsize=8
        )
        labels = (f"published, {published.card(family)}", f"measured, {card}, device", f"{card}, matched load")
        for name, label in zip(MARKS, labels):
            if name in series:
                axis.plot([], [], ls="", label=label, **MARKS[name])
        if (frame["status"] == WRONG).any():
            axis.plot([], [], **{**CROSS, "ms": 7})
        legend(figure, [axis], columns=2)
    return Plot(
        f"{family}-ladder-{hdim}",
        figure,
        f"Speedup over {over} at head dim {hdim}; above 1 is faster. Open marks: published; filled marks: measured on "
        "the device (device_warm)."
        + " Diamonds: more heads, so that an SM has as many blocks as on the authors' card." * ("loaded" in series)
        + _partly(frame, hdim)
        + _wrong_base(evidence, over, hdim)
        + "".join(f" {each}." for each in printed_twice(evidence, shown, over, hdim)),
        f"Dot plot of speedups over {over} at head dim {hdim}. {'; '.join(map(_told, frame.itertuples()))}.",
        frame,
        measured_in(*filter(None, (evidence, matched, beyond))) + published_on(family),
    )


def _row(evidence: Measured, matched: Measured | None, name: str, over: str, hdim: int) -> tuple:
    problem = evidence.shapes(name, refused=True).get(hdim)
    if problem is None:
        return (name, None, None, None, None, None, None, "not measured")
    more = matched.shapes(name).get(hdim) if matched else None
    loaded = ratio_over(matched, over, name, more) if matched and more else None
    return _found(evidence, name, over, problem, loaded)


def _found(evidence: Measured, name: str, over: str, problem: Problem, loaded: Ratio | None) -> tuple:
    said = published.speedup(name, over, problem)
    ratio = ratio_over(evidence, over, name, problem)
    return (
        name,
        problem.rotary_dim,
        said and said.value,
        *(ratio[:3] if ratio else (None,) * 3),
        loaded and loaded.value,
        known(evidence, name, problem).word,
    )


def _wrong_base(evidence: Measured, over: str, hdim: int) -> str:
    problem = evidence.shapes(over).get(hdim)
    wrong = problem and known(evidence, over, problem).word == WRONG
    return f" The result of {over} is wrong here too." if wrong else ""


def printed_twice(evidence: Measured, versions: list[str], over: str, hdim: int) -> Iterator[str]:
    """The versions of which the documents print speedups more than a tenth apart, with each."""
    for version in versions:
        problem = evidence.shapes(version).get(hdim)
        said = stated(version, over, problem) if problem else ()
        speeds = {each.source: each.speedup for each in said if each.speedup}
        if speeds and max(speeds.values()) > 1.1 * min(speeds.values()):
            each = " and ".join(f"{factor(speed)} ({source})" for source, speed in speeds.items())
            yield f"{short(version)} is printed as {each}"


def _title(log: pd.DataFrame, family: str, over: str, card: str) -> str:
    """What holds on this card: that no published version is faster; else what is drawn."""
    name, base = FAMILIES.get(family, family), over.removeprefix(f"{family}_").replace("_", " ")
    base = f"{base} kernels" if base.startswith("separate") else base
    measured = log[log["measured"].notna()]
    if len(measured) and (measured["high"].fillna(measured["measured"]) < TIE).all():
        return f"No published {name} kernel beats {base} at the published shapes ({card})"
    faster = measured[measured["low"].fillna(measured["measured"]) > TIE]["version"]
    if len(faster) == 1:
        return f"Of published {name} kernels only {short(faster.iloc[0])} beats {base} ({card})"
    if 1 < len(faster) < len(measured):
        base = base if "kernels" in base else f"the {base}"
        wrong = (measured["status"][faster.index] == WRONG).sum()
        result = f", {wrong} with wrong results" * bool(wrong)
        return f"{len(faster)} of {len(measured)} {name} kernels beat {base}{result}"
    return f"Published {name} kernels against {base} on the {card}"


def _marks(axis: Axes, place: int, row: pd.Series, low: float) -> None:
    """The marks of a version with their values; where it was not timed the word for why."""
    found = {name: row[name] for name in MARKS if row[name] == row[name]}
    both = [*found.values()]
    if both:
        axis.plot([place, place], [min(both), max(both)], color="0.8", lw=2, zorder=1)
    for name, value in found.items():
        axis.plot(place, value, **{"ms": 6.5, "ls": "", "zorder": 3, **MARKS[name]})
        if value == max(both):
            off, side, up = (0, 6), "center", "bottom"
        elif value == min(both):
            off, side, up = (0, -6), "center", "top"
        else:
            off, side, up = (7, 0), "left", "center"
        axis.annotate(
            f"{value:.2g}", (place, value), off, textcoords="offset points", ha=side, va=up, fontsize=8,
            color=INKS[name], bbox={"fc": "white", "ec": "none", "pad": 0.4},
        )  # fmt: skip
    if row.measured == row.measured:
        if row.status == WRONG:
            axis.plot(place, row.measured, **{**CROSS, "ms": 7, "label": None})
    else:
        word = row.status if row.status not in (OK, WRONG) else "not measured"
        under = not both or min(both) > 4 * low
        at, up = (low, "bottom") if under else (max(both) * 1.5, "bottom")
        axis.text(place, at, word, rotation=90, ha="center", va=up, fontsize=8, color=SOFT)


def _shape(evidence: Measured, names: list[str], hdim: int) -> str:
    problems = (evidence.shapes(name, refused=True).get(hdim) for name in names)
    problem = next(filter(None, problems), None)
    return f", {problem.heads} head{'s' * (problem.heads > 1)}, {problem.seq_q} tokens" if problem else ""


def _partly(frame: pd.DataFrame, hdim: int) -> str:
    """Which versions rotate fewer dims than all."""
    part = frame[(frame["rotary_dim"] > 0) & (frame["rotary_dim"] < hdim)]
    if part.empty:
        return ""
    return f" {', '.join(map(short, part['version']))} rotate {int(part['rotary_dim'].iloc[0])} dims, the others all."


def _told(row: Any) -> str:
    told = (("published", row.published), ("measured", row.measured), ("with the matched load", row.loaded))
    values = [f"{name} {value:.2f}" for name, value in told if value == value]
    values += [row.status] if row.status != OK else []
    return f"{short(row.version)}: {', '.join(values)}"
