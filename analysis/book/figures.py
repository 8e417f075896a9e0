"""The figures of the book, one function each, and how they are saved.

Every function takes the evidence and returns a `Plot`. Titles are computed from what is drawn.
"""

from __future__ import annotations

import base64
import io
import math
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from kernels import VERSIONS, Problem
from kernels.fast_math import SUFFIX

from ..measure.studies import TIMERS
from ..models import cost_model, profiles, roofline
from ..models.counter_agreement import agreement, trusted
from ..records import published
from ..records.files import ROOT
from ..records.interval import TIE, geometric_mean
from ..records.measured import Measured, baseline_of
from ..records.text import effect, span
from .tables import SOURCE_TIMER, fastest

DEFAULT_GPU = "nvidia-h200"
FOLDER = ROOT / "book" / "figures"
OTHER = ROOT / "_build" / "figures"
PUBLISHED_AT = "../../book/figures"  # from a chapter of the book, and from a notebook
FORMATS = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}

PALETTE = sns.color_palette("colorblind")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "///", "...", "xxx", "\\\\\\")
SERIES: dict[str, dict[str, Any]] = {
    "published": {"color": "0.35", "marker": "D", "markerfacecolor": "white", "label": "published"},
    "device_warm": {"color": PALETTE[0], "marker": "o", "label": "measured on the device"},
    "launched": {"color": PALETTE[1], "marker": "s", "label": "measured with launches and syncs"},
}  # fmt: skip
WRONG: dict[str, Any] = {"ls": "", "marker": "x", "color": "black", "ms": 9, "label": "result is wrong", "zorder": 4}
WAITS: dict[str, dict[str, Any]] = {
    wait.name: {"color": colour, "hatch": hatch}
    for wait, colour, hatch in zip(
        profiles.WAITS,
        ("0.15", *(PALETTE[i] for i in (2, 8, 4, 0, 1)), "0.8"),
        ("", "...", "xxx", "\\\\\\", "///", "", ""),
    )
}
RATIOS = (0.25, 10.0)  # of hardware over emulator: what is drawn
FAMILIES = {"rope": "RoPE"}  # where the name in a figure is not just the word
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "fused-positional-embeddings",
    "pdf.fonttype": 42,
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 9,
    "lines.markersize": 6.5,
    "axes.grid.axis": "y",
    "grid.color": "0.9",
}
WIDTH = 5.2
TITLE_COLUMNS = 52


@dataclass(frozen=True)
class Plot:
    """A figure with what a reader needs to find, read and cite it."""

    id: str
    figure: Figure
    caption: str
    alt: str
    data: pd.DataFrame


# ---------------------------------------------------------------- words computed from data


def short(version: str) -> str:
    """The name within its family: `"rope_v7"` to `"V7"`."""
    words = version.removeprefix(f"{VERSIONS[version].family}_").replace("_", " ")
    return words[0].upper() + words[1:]


# ---------------------------------------------------------------- drawing


def _looks(*rows: tuple[str, int, str, str]) -> dict[str, dict[str, Any]]:
    """How series are drawn, by their names: colour of the palette, marker, label."""
    return {name: {"color": PALETTE[colour], "marker": marker, "label": label} for name, colour, marker, label in rows}


@contextmanager
def _canvas(
    title: str, rows: int = 1, columns: int = 1, height: float = 3.6, **axes: Any
) -> Iterator[tuple[Figure, list]]:
    """A figure in the book's style whose title, at the left, is its message."""
    with sns.axes_style("whitegrid"), mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, **axes)
        lines = textwrap.wrap(title, TITLE_COLUMNS)
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=11, fontweight="bold")
        yield figure, [axis for row in grid for axis in row]
        sns.despine(fig=figure)


def _log_ticks(axes: Axes, which: Literal["x", "y"], low: float, high: float, unit: str = "") -> None:
    """Make an axis logarithmic, with plain numbers at 1, 2 and 5."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if high / low < 1e3 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _mark_wrong(axis: Axes, x: Sequence[float], y: pd.Series, status: pd.Series) -> None:
    """Cross out the points whose result is wrong."""
    wrong = [(left, up) for left, up, found in zip(x, y, status) if found == "wrong"]
    if wrong:
        axis.plot(*zip(*wrong), **WRONG)


def _shape_ticks(axis: Axes, problems: Sequence[Problem]) -> None:
    labels = [f"{problem.hdim}\n{problem.heads}×{problem.seq_q}" for problem in problems]
    axis.set_xticks(range(len(problems)), labels)
    axis.set_xlim(-0.5, len(problems) - 0.5)
    axis.set_xlabel("head dim\nheads × sequence")


def _legend(figure: Figure, axes: Sequence[Axes], columns: int = 2) -> None:
    found = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels())}
    found |= {label: found.pop(label) for label in (WRONG["label"],) if label in found}
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=columns, frameon=False, handletextpad=0.4
    )


def _speedups(evidence: Measured, version: str, problems: Sequence[Problem], baseline: str) -> list[dict]:
    """Speedups of a version over a baseline: published and measured, a row each."""
    rows = []
    for problem in problems:
        check = evidence.check(version, problem)
        base = {
            "version": version,
            "baseline": baseline,
            "hdim": problem.hdim,
            "rotary_dim": problem.rotary_dim,
            "heads": problem.heads,
            "seq": problem.seq_q,
            "status": check.status if check else "",
        }
        if claim := published.speedup(version, baseline, problem):
            rows.append({**base, "series": "published", "speedup": claim.value, "low": claim.low, "high": claim.high})
        for series in ("device_warm", SOURCE_TIMER):
            found = evidence.ratio(baseline, version, problem, series)
            if found:
                rows.append({**base, "series": series, "speedup": found.value, "low": found.low, "high": found.high})
    return rows


def _draw_speedups(axis: Axes, frame: pd.DataFrame, problems: Sequence[Problem]) -> None:
    """Published and measured speedups side by side at each head dim, around a line at 1."""
    series = [name for name in SERIES if name in set(frame["series"])]
    axis.axhline(1, color="0.2", lw=1)
    for place, name in enumerate(series):
        mine = frame[frame["series"] == name]
        x = [_place(problems, row.hdim) + 0.2 * (place - (len(series) - 1) / 2) for row in mine.itertuples()]
        axis.plot(x, mine["speedup"], ls="", zorder=3, **SERIES[name])
        if name in TIMERS:
            _mark_wrong(axis, x, mine["speedup"], mine["status"])
    low, high = frame["speedup"].min(), frame["speedup"].max()
    axis.set_ylim(min(low, 1) / 1.25, max(high, 1) * 1.25)
    _log_ticks(axis, "y", low, high, "×")
    _shape_ticks(axis, problems)


def _place(problems: Sequence[Problem], hdim: int) -> int:
    return [problem.hdim for problem in problems].index(hdim)


def _fusion(evidence: Measured, family: str, pairs: Sequence[tuple[str, str]], subject: str) -> Plot:
    """A panel for every version and what it is compared with: speedups, published and measured."""
    panels = []
    for version, baseline in pairs:
        shapes = [
            problem for problem in evidence.shapes(version).values()
            if evidence.ratio(baseline, version, problem) or published.speedup(version, baseline, problem)
        ]  # fmt: skip
        panels.append((version, baseline, shapes, pd.DataFrame(_speedups(evidence, version, shapes, baseline))))
    frame = pd.concat([drawn for *_, drawn in panels])

    def words(timer: str, drawn: pd.DataFrame) -> str:
        return effect(drawn[drawn["series"] == timer]["speedup"])

    several = len({version for version, *_ in panels}) < len(panels)
    said = [
        f"{short(version)} {words('device_warm', drawn)}{f' as {_plain(baseline)}' if several else ''}"
        for version, baseline, _, drawn in panels
    ]
    last, *_, launched = panels[-1]
    title = f"{subject}, on the device: {', '.join(said)}. With launches and syncs {short(last)} "
    title += words(SOURCE_TIMER, launched)
    with _canvas(title, columns=len(panels), height=4.8, sharey=True) as (figure, axes):
        for axis, (version, baseline, shapes, drawn) in zip(axes, panels):
            _draw_speedups(axis, drawn, shapes)
            axis.set_title(f"{short(version)}\nover {_plain(baseline)}" if several else short(version), loc="left")
        axes[0].set_ylim(frame["speedup"].min() / 1.25, frame["speedup"].max() * 1.25)
        axes[0].set_ylabel("speedup over separate")
        _legend(figure, axes, columns=1)
    return Plot(f"{family}-fusion", figure, "", _describe(frame), frame)


def _plain(baseline: str) -> str:
    """A separate path's name in words: `"separate, scalar"`."""
    return short(baseline).lower().replace("separate ", "separate, ")


# ---------------------------------------------------------------- the figures


def rope_fusion(evidence: Measured) -> Plot:
    """Front page: what fusing RoPE gains, published and measured."""
    pairs = [(version, "rope_separate") for version in ("rope_v1c", "rope_v7")]
    plot = _fusion(evidence, "rope", pairs, "RoPE against separate kernels")
    return replace(
        plot,
        caption="Speedup over separate RoPE kernels: above 1 the fused version is faster. V1c rotates every dim, "
        "V7 the published part of them. The published loop times launches and host syncs too, of which the separate "
        f"path has one more each. Published on the {published.card('rope')}.",
    )


def sinusoidal_fusion(evidence: Measured) -> Plot:
    """What fusing sinusoidal embeddings gains, and over which baseline."""
    pairs = [
        ("sinusoidal_v5", "sinusoidal_separate_scalar"),
        ("sinusoidal_v5", "sinusoidal_separate_float4"),
        ("sinusoidal_hybrid_v1", "sinusoidal_separate_float4"),
    ]
    plot = _fusion(evidence, "sinusoidal", pairs, "Against separate kernels")
    return replace(
        plot,
        caption="Speedup over separate kernels. The write-up compares V5 with scalar separate kernels, the hybrid "
        f"analysis with float4 ones: the baseline decides. Published on the {published.card('sinusoidal')}.",
    )


def _describe(frame: pd.DataFrame) -> str:
    parts = []
    for (version, baseline, series), rows in frame.groupby(["version", "baseline", "series"], sort=False):
        values = ", ".join(f"{row.speedup:.2f} at {row.hdim}" for row in rows.itertuples())
        parts.append(f"{version} over {baseline}, {series}: {values}")
    return "Dot plot of speedups by head dim. " + "; ".join(parts) + "."


def ladder(evidence: Measured, family: str) -> Plot:
    """Every version of a family in the order of the log: its speedup over its baseline, published and measured."""
    versions = [version for version in evidence.versions(family) if baseline_of(version)]
    rows = [
        row
        for version in versions
        for row in _speedups(evidence, version, list(evidence.shapes(version).values()), baseline_of(version))
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
    with _canvas(title, height=1.6 + 0.36 * len(versions)) as (figure, (axis,)):
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
        _log_ticks(axis, "x", frame["speedup"].min(), frame["speedup"].max(), "×")
        axis.set_xlabel("speedup over the baseline")
        for label, face in (("published", "white"), ("measured", "0.3")):
            axis.plot([], [], ls="", marker="o", color="0.3", markerfacecolor=face, label=label)
        _legend(figure, [axis], columns=3)
    bases = ", ".join(dict.fromkeys(baseline_of(version) for version in versions))
    return Plot(
        f"{family}-ladder",
        figure,
        f"Speedup over the baseline ({bases}) by head dim, above 1: faster. Open marks are published on the "
        f"{published.card(family)}, filled ones measured on the {evidence.gpu['name']} (device_warm).",
        _describe(frame),
        frame,
    )


def _lines(
    evidence: Measured, series: dict[str, dict[Problem, str | None]], problems: Sequence[Problem], title: str
) -> tuple[Figure, pd.DataFrame]:
    """Device times by head dim; a series names the version it shows at each problem."""
    rows = []
    for label, chosen in series.items():
        for problem, version in chosen.items():
            if version and (taken := evidence.time(version, problem)):
                check = evidence.check(version, problem)
                status = check.status if check else ""
                shape = (problem.hdim, problem.rotary_dim, problem.heads, problem.seq_q)
                rows.append((label, version, *shape, *taken, status))
    names = ["series", "version", "hdim", "rotary_dim", "heads", "seq", "median_us", "low_us", "high_us", "status"]
    frame = pd.DataFrame(rows, columns=names)
    with _canvas(title, height=4.4) as (figure, (axis,)):
        for place, label in enumerate(series):
            mine = frame[frame["series"] == label]
            dodge = 0.08 * (place - (len(series) - 1) / 2)
            x = [_place(problems, size) + dodge for size in mine["hdim"]]
            colour, marker = PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]
            axis.plot(x, mine["median_us"], marker=marker, color=colour, lw=1, label=label)
            _mark_wrong(axis, x, mine["median_us"], mine["status"])
        _log_ticks(axis, "y", frame["median_us"].min(), frame["median_us"].max())
        axis.set_ylabel("µs a call, on the device")
        _shape_ticks(axis, problems)
        _legend(figure, [axis])
    return figure, frame


def _times_in_words(frame: pd.DataFrame) -> str:
    parts = []
    for label, rows in frame.groupby("series", sort=False):
        parts.append(f"{label}: " + ", ".join(f"{row.median_us:.1f} at {row.hdim}" for row in rows.itertuples()))
    return "Lines of device time in microseconds by head dim. " + "; ".join(parts) + "."


def attention_online(evidence: Measured) -> Plot:
    """Attention without embeddings: time above, share of NaN below."""
    problems = evidence.problems("attention")
    versions = ("attention_baseline", "attention_online", "attention_online_fixed")
    rows = []
    for version in versions:
        for problem in problems:
            taken, check = evidence.time(version, problem), evidence.check(version, problem)
            if check:
                shape = (problem.hdim, problem.heads, problem.seq_q)
                rows.append((version, *shape, *(taken or 3 * (None,)), 100 * check.nan_share, check.status))
    names = ["version", "hdim", "heads", "seq", "median_us", "low_us", "high_us", "nan_percent", "status"]
    frame = pd.DataFrame(rows, columns=names).astype({"median_us": float})
    gains = [evidence.ratio("attention_baseline", "attention_online", problem) for problem in problems]
    lost = frame[frame["version"] == "attention_online"]["nan_percent"]
    nan = f"{span(lost, 1)} % of its outputs are NaN" if lost.max() > 0 else "none of its outputs is NaN"
    title = f"The online kernel as published {effect(gain.value for gain in gains if gain)} as the baseline; {nan}"
    with _canvas(title, rows=2, height=5.2, sharex=True, height_ratios=(2.4, 1)) as (figure, (above, below)):
        width = 0.8 / len(versions)
        for place, version in enumerate(versions):
            mine = frame[frame["version"] == version]
            x = [_place(problems, size) for size in mine["hdim"]]
            colour, marker = PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]
            dodge = 0.08 * (place - (len(versions) - 1) / 2)
            moved = [value + dodge for value in x]
            above.plot(moved, mine["median_us"], marker=marker, color=colour, lw=1, label=version)
            _mark_wrong(above, moved, mine["median_us"], mine["status"])
            left = [value + width * (place - (len(versions) - 1) / 2) for value in x]
            hatch = HATCHES[place % len(HATCHES)]
            below.bar(left, mine["nan_percent"], width * 0.9, color=colour, hatch=hatch, edgecolor="white")
        _log_ticks(above, "y", frame["median_us"].min(), frame["median_us"].max())
        above.set_ylabel("µs a call, on the device")
        below.set_ylabel("NaN, %")
        below.set_ylim(0, 100)
        _shape_ticks(below, problems)
        _legend(figure, [above], columns=2)
    return Plot(
        "attention-online",
        figure,
        f"Above, device time of one call (device_warm) on the {evidence.gpu['name']}; below, the share of outputs that "
        "are not a number. A check that asks whether |a − b| exceeds a tolerance lets NaN pass.",
        "; ".join(
            f"{row.version} at {row.hdim}: {row.median_us:.1f} µs, {row.nan_percent:.1f} % NaN"
            for row in frame.itertuples()
        ),
        frame,
    )


def rope_savings(evidence: Measured) -> Plot:
    """What the hybrid saves over separate kernels, in microseconds a call, under each timer."""
    rows = []
    problems = [problem for problem in evidence.problems("rope", partial=True) if evidence.time("rope_v7", problem)]
    for problem in problems:
        for timer in TIMERS:
            pair = [evidence.medians(version, problem, timer) for version in ("rope_separate", "rope_v7")]
            saved = (pair[0] - pair[1]).dropna()
            shape = (problem.hdim, problem.rotary_dim, problem.heads, problem.seq_q)
            rows.append((*shape, timer, saved.median(), saved.min(), saved.max()))
    names = ["hdim", "rotary_dim", "heads", "seq", "timer", "saved_us", "low_us", "high_us"]
    frame = pd.DataFrame(rows, columns=names)
    by_timer = {timer: frame[frame["timer"] == timer]["saved_us"] for timer in TIMERS}
    title = (
        f"The hybrid saves {span(by_timer[SOURCE_TIMER], 0)} µs a call where launches and syncs are timed, "
        f"{span(by_timer['device_warm'], 1)} µs on the device"
    )
    with _canvas(title, height=4) as (figure, (axis,)):
        axis.axhline(0, color="0.2", lw=1)
        for place, timer in enumerate(TIMERS):
            mine = frame[frame["timer"] == timer]
            x = [_place(problems, row.hdim) + 0.27 * (place - 1) for row in mine.itertuples()]
            colour = {"device_warm": PALETTE[0], "device_cold": PALETTE[9], "launched": PALETTE[1]}[timer]
            axis.bar(x, mine["saved_us"], 0.25, color=colour, hatch=HATCHES[place], edgecolor="white", label=timer)
        axis.set_ylabel("µs saved a call")
        _shape_ticks(axis, problems)
        _legend(figure, [axis], columns=3)
    return Plot(
        "rope-savings",
        figure,
        "Time of rope_separate minus time of rope_v7. Both kernels' device time is in all three timers; only launched "
        "adds the launches and host syncs of the source's own loop, where the separate path has three and two, the "
        "hybrid two and one.",
        "; ".join(f"{row.timer} at {row.hdim}: {row.saved_us:.1f} µs saved" for row in frame.itertuples()),
        frame,
    )


def peers(evidence: Measured, family: str, versions: Sequence[str]) -> Plot:
    """Own versions beside the fastest that PyTorch offers."""
    problems = evidence.problems(family, partial=True if family == "rope" else None)
    offered = evidence.versions(family, peers=True)
    compiled = [version for version in offered if "_compiled" in version]
    eager = [version for version in offered if version not in compiled]
    series: dict[str, dict[Problem, str | None]] = {version: {p: version for p in problems} for version in versions}
    for way, among in (("PyTorch, compiled", compiled), ("PyTorch, eager" if compiled else "PyTorch SDPA", eager)):
        if among:
            series[f"{way}, fastest backend"] = {p: fastest(evidence, among, p) for p in problems}
    ratios = []
    for problem in problems:
        own, theirs = (fastest(evidence, names, problem) for names in (versions, offered))
        found = evidence.ratio(theirs, own, problem) if own and theirs else None
        ratios += [found.value] if found else []
    title = f"Against the fastest of PyTorch, where both are right, the log's best kernel {effect(ratios)}"
    figure, frame = _lines(evidence, series, problems, title)
    return Plot(
        f"{family}-peers",
        figure,
        f"Device time of one call (device_warm) on the {evidence.gpu['name']}; of PyTorch's attention backends the "
        "fastest at each head dim. A cross marks a wrong result.",
        _times_in_words(frame),
        frame,
    )


def roofline_plot(evidence: Measured, frame: pd.DataFrame | None = None) -> Plot:
    """Measured ceilings, and below them every version and shape twice: for L2 warm, for DRAM with caches flushed."""
    frame = roofline.points(evidence) if frame is None else frame
    ceilings = evidence.gpu["ceilings"]
    top = ceilings["fp32_tflops"]
    title = f"Ceilings of the {evidence.gpu['name']}, measured"
    most = frame.groupby("level")["percent_of_roof"].max()
    if len(frame):
        title = (
            f"No version gets beyond {most['l2']:.0f} % of what L2 would allow it, nor, with caches flushed, beyond "
            f"{most['dram']:.0f} % of what DRAM would"
        )
    families = list(dict.fromkeys(frame["family"])) or [""]
    dims = sorted(set(frame["hdim"]))
    shades = sns.color_palette("viridis", len(dims))
    of = {level: ceilings[key] for level, (key, _) in roofline.LEVELS.items()}
    slopes = {f"{level.upper()}, {gb_s / 1e3:.1f} TB/s": gb_s for level, gb_s in of.items()}
    with _canvas(title, columns=len(families), height=4.6, sharey=True) as (figure, axes):
        for axis, family in zip(axes, families):
            _draw_roofs(axis, top, slopes, frame)
            axis.set_title(FAMILIES.get(family, family.capitalize()), loc="left")
            for place, size in enumerate(dims):
                mine = frame[(frame["family"] == family) & (frame["hdim"] == size)]
                style: dict[str, Any] = {"color": shades[place], "marker": MARKERS[place % len(MARKERS)], "ls": ""}
                for level, look in (("l2", {"label": f"head dim {size}"}), ("dram", {"markerfacecolor": "white"})):
                    points = mine[mine["level"] == level]
                    axis.plot(points["flop_per_byte"], points["tflops"], ms=4, **style, **look)
            axis.set_xlabel("FLOP a byte")
        axes[0].set_ylabel("TFLOP/s")
        _legend(figure, axes, columns=3)
    return Plot(
        "roofline",
        figure,
        f"Ceilings measured on the {evidence.gpu['name']}, fp32 {top:.0f} TFLOP/s. Each version and shape is there "
        "twice. Filled: over the bytes between L2 and the L1s, time device_warm. Open: over the bytes of DRAM, time "
        f"device_cold. Bytes are from {roofline.sources(frame)}; FLOP are those of the two products."
        if len(frame)
        else f"Ceilings measured on the {evidence.gpu['name']}.",
        "Dot plot of TFLOP/s by FLOP a byte, below two roofs. "
        + "; ".join(
            f"{level} at head dim {size}: {span(rows['flop_per_byte'])} FLOP a byte, {span(rows['tflops'])} TFLOP/s"
            for (level, size), rows in frame.groupby(["level", "hdim"])
        )
        if len(frame)
        else "Ceilings only.",
        frame,
    )


def _draw_roofs(axis: Axes, tflops: float, slopes: Mapping[str, float], frame: pd.DataFrame) -> None:
    """Bandwidths (GB/s, by their labels) as slopes up to the fp32 ceiling, on logarithmic axes that hold all points."""
    low, bottom = (frame["flop_per_byte"].min() / 2, frame["tflops"].min() / 2) if len(frame) else (0.1, 0.1)
    high = 2e3 * tflops / min(slopes.values())
    for (label, gb_s), dashes in zip(slopes.items(), ("-", "--")):
        ridge = 1e3 * tflops / gb_s
        axis.plot([low, ridge, high], [low * gb_s / 1e3, tflops, tflops], color="0.3", ls=dashes, lw=1.2, label=label)
    _log_ticks(axis, "x", 1, 1e4)
    _log_ticks(axis, "y", 1, 1e4)
    axis.set(xlim=(low, high), ylim=(bottom, 2 * tflops))


def roofline_published(frame: pd.DataFrame, sheet: roofline.Datasheet = roofline.RTX_4000_ADA) -> Plot:
    """The published times below the roofline of their card's datasheet; `frame` is `roofline.published_points`."""
    title = (
        f"On the {sheet.name} the published times reach {span(frame['percent_of_roof'], 0)} % of what its datasheet "
        "allows if every byte comes from DRAM once"
    )
    families = list(dict.fromkeys(frame["family"]))
    with _canvas(title, height=4.4) as (figure, (axis,)):
        _draw_roofs(axis, sheet.fp32_tflops, {f"datasheet: DRAM, {sheet.dram_gb_s:.0f} GB/s": sheet.dram_gb_s}, frame)
        for place, family in enumerate(families):
            mine = frame[frame["family"] == family]
            style: dict[str, Any] = {"color": PALETTE[place], "marker": MARKERS[place], "ls": "", "ms": 5}
            axis.plot(mine["flop_per_byte"], mine["tflops"], label=FAMILIES.get(family, family), **style)
        axis.set(xlabel="FLOP a byte touched", ylabel="TFLOP/s, from the published time")
        _legend(figure, [axis], columns=2)
    return Plot(
        "roofline-published",
        figure,
        f"The roof is the datasheet's, not measured ({sheet.source}). Bytes are the distinct 32 B sectors that the "
        "kernels here touch, counted by the emulator. The published times have launches and host syncs in them.",
        "Dot plot of published TFLOP/s by FLOP a byte, below the datasheet's roof. "
        + "; ".join(
            f"{family}: {span(rows['flop_per_byte'])} FLOP a byte, {span(rows['tflops'])} TFLOP/s"
            for family, rows in frame.groupby("family", sort=False)
        ),
        frame,
    )


def warp_waits(evidence: Measured, profiled: pd.DataFrame, hdim: int = 2048) -> Plot:
    """What a warp of every version's attention waits for at a head dim, as shares of its time."""
    mine = profiles.attention(profiles.at(profiled, hdim))
    mine = mine[~mine["version"].str.endswith(SUFFIX)]
    frame = pd.DataFrame(
        [
            {"version": row["version"], "family": row["problem"].family, "wait": wait, "percent": 100 * share}
            for row in mine.to_dict("records")
            for wait, share in profiles.waits(row).items()
        ]
    )
    wide = frame.pivot_table(index=["family", "version"], columns="wait", values="percent", sort=False)
    idle = wide.drop(columns=profiles.ISSUES).idxmax(axis="columns").value_counts()
    title = (
        f"At head dim {hdim} warps wait most for {idle.index[0]}, in {idle.iloc[0]} of {len(wide)} versions; they "
        f"issue, or could, in {span(wide[profiles.ISSUES], 0)} % of their time"
    )
    families = list(dict.fromkeys(frame["family"]))
    sizes = [len(wide.loc[family]) for family in families]
    with _canvas(title, rows=len(families), height=2.4 + 0.24 * len(wide), sharex=True, height_ratios=sizes) as (
        figure,
        axes,
    ):
        for axis, family in zip(axes, families):
            bars = wide.loc[family]
            left = pd.Series(0.0, index=bars.index)
            for wait, style in WAITS.items():
                axis.barh(range(len(bars)), bars[wait], 0.8, left=left, label=wait, edgecolor="white", lw=0.3, **style)
                left += bars[wait]
            axis.set_yticks(range(len(bars)), [short(version) for version in bars.index])
            axis.set_ylim(len(bars) - 0.4, -0.6)
            axis.set_xlim(0, 100)
            axis.grid(visible=False)
            axis.set_title(FAMILIES.get(family, family.capitalize()), loc="left")
        axes[-1].set_xlabel("% of a warp's time")
        _legend(figure, axes)
    return Plot(
        "warp-waits",
        figure,
        f"Issue-stall reasons of the attention kernel at head dim {hdim} on the {evidence.gpu['name']}, from hardware "
        "counters, in groups; a warp that is ready while another issues counts as one that could.",
        f"Stacked bars of what a warp waits for at head dim {hdim}, in percent. "
        + "; ".join(
            f"{version}: " + ", ".join(f"{name} {value:.0f}" for name, value in shares.items() if value >= 10)
            for (_, version), shares in wide.iterrows()
        ),
        frame,
    )


def emulator_agreement(evidence: Measured, compared: pd.DataFrame) -> Plot:
    """What the hardware counts over what the emulator counts, a dot a launch (`counter_agreement.compare`)."""
    summary = agreement(compared)
    close = [f"{name} in {100 * share:.0f} %" for name, share in trusted(summary).items()] or ["nothing"]
    title = f"The emulator counts within 10 % of the hardware: {_listed(close)}{' of launches' * (len(close) > 1)}"
    families = list(dict.fromkeys(compared["family"]))
    with _canvas(title, height=1.9 + 0.42 * len(summary)) as (figure, (axis,)):
        axis.axvspan(1 / 1.1, 1.1, color="0.9", zorder=0, label="within 10 %")
        axis.axvline(1, color="0.2", lw=1, zorder=1)
        for row, quantity in enumerate(summary["quantity"]):
            mine = compared[compared["quantity"] == quantity].sort_values("ratio", kind="stable")
            y = row + 0.6 * (pd.Series(range(len(mine)), index=mine.index) + 0.5) / len(mine) - 0.3
            for place, family in enumerate(families):
                chosen = mine["family"] == family
                style: dict[str, Any] = {"color": PALETTE[place], "marker": MARKERS[place], "ls": "", "ms": 3}
                label = FAMILIES.get(family, family)
                axis.plot(mine[chosen]["ratio"].clip(*RATIOS), y[chosen], label=label, **style)
        axis.set_yticks(range(len(summary)), [f"{row.quantity}  ({row.launches})" for row in summary.itertuples()])
        axis.set_ylim(len(summary) - 0.5, -0.5)
        axis.grid(visible=True, axis="y", color="0.93")
        axis.set_xlim(RATIOS[0] / 1.1, RATIOS[1] * 1.1)
        _log_ticks(axis, "x", *RATIOS, "×")
        axis.set_xlabel("hardware over emulator")
        _legend(figure, [axis], columns=3)
    return Plot(
        "counters-emulator",
        figure,
        f"A dot is a launch of a version at a published shape, sorted within its row; in brackets how many there are. "
        f"Hardware: counters of the {evidence.gpu['name']}. Emulator: the same PTX, executed. Dots beyond "
        f"{RATIOS[0]:g} and {RATIOS[1]:g} are drawn there.",
        "Dot plot of hardware counts over emulator counts. "
        + "; ".join(
            f"{row.quantity}: median {row.median:.2f}, {row.low:.2f} to {row.high:.2f} in nine of ten launches"
            for row in summary.itertuples()
        ),
        compared,
    )


def _listed(names: Sequence[str]) -> str:
    """`"a, b and c"`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


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
        f"Sinusoidal V5 embeds an element {fused['embedded']:.0f} times and takes {fused['over_separate']:.2f}× as "
        f"long as separate kernels ({fused['over_separate'] / scalar.iloc[0]:.2f}× for scalar ones); RoPE V4 embeds "
        f"{turned['embedded']:.0f} times and takes {turned['over_separate']:.2f}×"
    )
    families = list(dict.fromkeys(frame["family"]))
    sizes = [int((frame["family"] == family).sum()) for family in families]
    builds = {"over_separate": "accurate functions", "over_separate_fast_math": "fast-math, where it differs"}
    with _canvas(title, rows=2, height=6.4, sharex=True, height_ratios=sizes) as (figure, axes):
        for axis, family in zip(axes, families):
            mine = frame[frame["family"] == family].sort_values("embedded", kind="stable")
            axis.axvline(1, color="0.2", lw=1, label="separate kernels, float4 loads")
            if family == "sinusoidal":
                axis.axvline(scalar.iloc[0], color="0.2", lw=1, ls="--", label="separate kernels, scalar loads")
            for (column, label), face in zip(builds.items(), (PALETTE[0], "white")):
                places = range(len(mine))
                axis.plot(mine[column], places, ls="", marker="o", color=PALETTE[0], markerfacecolor=face, label=label)
            _mark_wrong(axis, list(mine["over_separate"]), pd.Series(range(len(mine))), mine["status"])
            names = [f"{short(row.version)}   {row.embedded:.3g}×" for row in mine.itertuples()]
            axis.set_yticks(range(len(mine)), names)
            axis.set_ylim(len(mine) - 0.5, -0.5)
            axis.grid(visible=True, axis="y", color="0.93")
            axis.set_title({"rope": "RoPE"}.get(family, family.capitalize()), loc="left")
        drawn = frame[list(builds)].stack()
        axes[-1].set_xlim(min(drawn.min(), 1) / 1.15, drawn.max() * 1.15)
        _log_ticks(axes[-1], "x", 1, 10, "×")
        axes[-1].set_xlabel("time over separate kernels with float4 loads")
        _legend(figure, axes)
    return Plot(
        "fusion",
        figure,
        f"Head dim 2048, 4 heads of 64 queries, device_warm on the {evidence.gpu['name']}. Beside each name how often "
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
    )


def cliff(published_shapes: Measured, held: Measured, version: str = "attention_online_fixed") -> Plot:
    """The rate by head dim in the published shapes, which shrink with it, and with heads and queries held."""
    rows, shares = [], []
    for label, evidence in (("published shapes", published_shapes), ("4 heads of 64 queries", held)):
        rates = {}
        for problem in evidence.problems("attention"):
            if taken := evidence.time(version, problem):
                rates[problem.hdim] = problem.flops / evidence.medians(version, problem, "device_warm")
                blocks, rate = problem.heads * problem.seq_q, problem.flops / taken.us / 1e6
                rows.append((label, problem.hdim, problem.heads, problem.seq_q, blocks, rate))
        shares.append(f"{100 * geometric_mean((rates[8192] / rates[4096]).to_numpy()).value:.0f} %")
    names = ["series", "hdim", "heads", "seq", "blocks", "tflops"]
    frame = pd.DataFrame(rows, columns=names)
    frame = frame[frame["hdim"] >= frame[frame["series"] == "published shapes"]["hdim"].min()]
    title = (
        f"At head dim 8192 the rate is {shares[0]} of that at 4096 in the published shapes, {shares[1]} with heads and "
        "queries held"
    )
    with _canvas(title, height=4.2) as (figure, (axis,)):
        for place, (label, mine) in enumerate(frame.groupby("series", sort=False)):
            axis.plot(mine["hdim"], mine["tflops"], marker=MARKERS[place], color=PALETTE[place], lw=1, label=label)
            if label == "published shapes":
                for row in mine.itertuples():
                    at, shift = (row.hdim, row.tflops), (-8, -9)
                    axis.annotate(f"{row.blocks} blocks", at, shift, textcoords="offset points", fontsize=8, ha="right")
        _log_ticks(axis, "y", frame["tflops"].min(), frame["tflops"].max())
        axis.set_xscale("log", base=2)
        axis.set_xticks(sorted(set(frame["hdim"])), [str(size) for size in sorted(set(frame["hdim"]))])
        axis.set_xlim(frame["hdim"].min() / 2.6, frame["hdim"].max() * 1.3)
        axis.set_ylim(frame["tflops"].min() / 2, frame["tflops"].max() * 1.3)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_ylabel("TFLOP/s, on the device")
        axis.set_xlabel("head dim")
        _legend(figure, [axis])
    return Plot(
        "l2-cliff",
        figure,
        f"{short(version)}, device_warm on the {published_shapes.gpu['name']}. Beside the published shapes the blocks "
        f"of a call, one a query of a head; {published_shapes.gpu['sms']} SMs share them.",
        "Lines of TFLOP/s by head dim. "
        + "; ".join(f"{row.series}, {row.hdim}: {row.tflops:.3f} ({row.blocks} blocks)" for row in frame.itertuples())
        + ".",
        frame,
    )


FUSION_SERIES = _looks(
    (cost_model.FULL, 0, "o", "full fusion"),
    (cost_model.HYBRID, 1, "s", "hybrid"),
    (cost_model.SEPARATE, 2, "^", "separate"),
    (cost_model.NAIVE, 4, "P", "the log's full fusion"),
)


def fusion_map(judged: cost_model.Judged) -> Plot:
    """Which of full fusion, hybrid and separate wins on one core: by keys, size of K, and how K is rotated."""
    rows = []
    for problem in judged.problems:
        best = judged.fastest(problem)
        others = [judged.measured(problem, version) for version in cost_model.FUSIONS if version != best]
        rows.append(
            {
                "kind": cost_model.kind(problem),
                "problem": str(problem),
                "keys": problem.seq_k,
                "k_megabytes": 4e-6 * math.prod(problem.kv_shape),
                "winner": best,
                "margin": min(others) / judged.measured(problem, best),
                "tie": len(judged.winners(problem)) > 1,
                "predicted": judged.chosen(problem),
                "predicted_right": judged.chosen(problem) in judged.winners(problem),
                "held_out": problem in judged.held(),
            }
        )
    frame = pd.DataFrame(rows)
    said = cost_model.words(judged)
    title = (
        f"Full fusion wins or ties on {said['fused_one_tile']} problems whose keys fit one tile, on "
        f"{said['fused_together']} whose blocks rotate more keys together, on {said['fused_alone']} of the others"
    )
    left, right = frame["keys"].min() / 2, frame["keys"].max() * 2
    low, high = frame["k_megabytes"].min() / 2, frame["k_megabytes"].max() * 2
    together = frame["kind"] == cost_model.KINDS[2]
    panels = {"Rotated where met": frame[~together], "Rotated together": frame[together]}
    with _canvas(title, rows=1, columns=2, height=4.6, sharex=True, sharey=True) as (figure, axes):
        for axis, (name, mine) in zip(axes, panels.items()):
            axis.axvline(cost_model.CORE_KEYS * 1.2, color="0.4", ls="--", lw=1, label="one tile of keys")
            for row in mine.sort_values("margin", ascending=False).itertuples():
                look = {"ms": _margin_size(row.margin), "ls": "", "zorder": 3, **FUSION_SERIES[row.winner]}
                hollow = {"markerfacecolor": "white"} if row.tie else {}
                axis.plot(row.keys, row.k_megabytes, **{**look, "label": None}, **hollow)
                if not row.predicted_right:
                    axis.plot(row.keys, row.k_megabytes, **{**WRONG, "ms": 6, "label": None})
            axis.set_title(name, loc="left")
            _log_ticks(axis, "x", left, right, "")
            _log_ticks(axis, "y", low, high)
            axis.set(xlim=(left, right), ylim=(low, high), xlabel="keys")
            axis.xaxis.set_major_locator(LogLocator(base=10))
        axes[0].set_ylabel("K, MB")
        for version in cost_model.FUSIONS:
            axes[0].plot([], [], ls="", **FUSION_SERIES[version])
        axes[0].plot([], [], ls="", marker="o", color="0.3", markerfacecolor="white", label="a tie")
        if not frame["predicted_right"].all():
            axes[0].plot([], [], **{**WRONG, "ms": 6, "label": "the model chose another"})
        _legend(figure, axes)
    return Plot(
        "fusion-map",
        figure,
        f"The fastest of three versions of one core, device_warm on the {judged.evidence.gpu['name']}; larger marks: a "
        "larger lead over the next. Left and right: how full fusion rotates K, by its rule: again for each tile of "
        "queries, or once, by all blocks before they attend. A tie is within 3 %, or within the interval over the "
        "processes.",
        "Dot plot of the fastest version by number of keys and size of K. "
        + "; ".join(
            f"{name}: "
            + ", ".join(f"{FUSION_SERIES[v]['label']} {n}" for v, n in mine["winner"].value_counts().items())
            for name, mine in frame.groupby("kind", sort=False)
        )
        + ".",
        frame,
    )


def _margin_size(margin: float) -> float:
    """Points across of a mark, by how many times as long the next takes."""
    return 4 + 7 * min(math.log2(margin), 1.0)


def fusion_model(judged: cost_model.Judged) -> Plot:
    """Predicted over measured times: what the model was fitted to in grey, what was held out in colour."""
    frame = judged.points.sort_values(["held_out", "version"], kind="stable")
    held = frame[frame["held_out"] & frame["version"].isin(cost_model.FUSIONS)]
    found = cost_model.answers(judged).set_index("answer")["right"]
    constants = found.drop(index="the model")
    title = (
        f"Held out, the model is off by {cost_model.errors(held).median():.0f} % in the median; its choice is right on "
        f"{found['the model']:.0f} % of problems, the best constant one on {constants.max():.0f} %"
    )
    low = min(frame["measured_us"].min(), frame["predicted_us"].min()) / 1.5
    high = max(frame["measured_us"].max(), frame["predicted_us"].max()) * 1.5
    with _canvas(title, height=5.2) as (figure, (axis,)):
        axis.fill_between([low, high], [0.8 * low, 0.8 * high], [1.2 * low, 1.2 * high], color="0.92", label="± 20 %")
        axis.plot([low, high], [low, high], color="0.2", lw=1)
        seen = frame[~frame["held_out"]]
        look: dict[str, Any] = {"ls": "", "ms": 4}
        axis.plot(seen["measured_us"], seen["predicted_us"], color="0.65", marker=".", label="fitted to", **look)
        for version, style in FUSION_SERIES.items():
            mine = frame[frame["held_out"] & (frame["version"] == version)]
            axis.plot(mine["measured_us"], mine["predicted_us"], zorder=3, **{**look, **style})
        for which in ("x", "y"):
            _log_ticks(axis, which, low, high)  # type: ignore[arg-type]
        axis.set(xlim=(low, high), ylim=(low, high), xlabel="µs a call, measured", ylabel="µs a call, predicted")
        _legend(figure, [axis], columns=3)
    shown = frame.assign(problem=frame["problem"].map(str))
    return Plot(
        "fusion-model",
        figure,
        f"Times of a call, device_warm on the {judged.evidence.gpu['name']}. In colour: problems that the model "
        "was not fitted to.",
        "Dot plot of predicted by measured time. "
        + "; ".join(
            f"{version}, held out: median error {cost_model.errors(mine).median():.0f} %"
            for version, mine in shown[shown["held_out"]].groupby("version", sort=False)
        )
        + ".",
        shown,
    )


# ---------------------------------------------------------------- V8


V8_SERIES = _looks(
    (cost_model.HYBRID, 1, "s", "hybrid"),
    (cost_model.SEPARATE, 2, "^", "separate"),
    ("rope_v8_mma", 9, "v", "full, core of warps"),
    ("rope_v8_portable", 8, "D", "full, portable core"),
    ("rope_v7", 4, "P", "the log's V7"),
    ("peer", 3, "X", "fastest peer"),
)
CORES = _looks(("wgmma", 0, "o", "core of warpgroups"), ("mma", 1, "s", "core of warps"))


def v8_idea(core: str, shape: Any, problem: Problem) -> Plot:
    """How a cluster shares one tile of queries: drawn, not measured; the numbers are those of the chosen shape."""
    stages = (
        "rotates its slice\nof Q and of K",
        "multiplies them:\npart of all scores",
        "sums some rows,\nsoftmax",
        "multiplies weights\nwith its slice of V",
    )
    tops = (3.0, 2.2, 1.0, -0.2)
    ranks = ("block 0", "block 1", f"block {shape.cluster - 1}")
    columns = (0.0, 1.5, 3.4)
    title = (
        f"A cluster of {shape.cluster} blocks takes {shape.queries} queries of a head; each block holds {shape.width} "
        "of the dims, and rotates each key once"
    )
    with _canvas(title, height=4.6) as (figure, (axis,)):
        axis.set(xlim=(-0.75, 4.85), ylim=(-0.75, 3.85))
        axis.axis("off")
        for place, (rank, x) in enumerate(zip(ranks, columns)):
            colour = (PALETTE[0], PALETTE[2], PALETTE[4])[place]
            axis.text(x, 3.55, rank, ha="center", va="center", fontsize=9, fontweight="bold", color=colour)
            for stage, y in zip(stages, tops):
                axis.text(
                    x, y, stage, ha="center", va="center", fontsize=7.5,
                    bbox={"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": colour, "linewidth": 1.3},
                )  # fmt: skip
            axis.annotate("", (x, tops[1] + 0.24), (x, tops[0] - 0.24), arrowprops={"arrowstyle": "->", "color": "0.3"})
        axis.text(2.45, 2.6, "…", ha="center", va="center", fontsize=14)
        for high, low, what in ((1, 2, "parts of the scores to\nthe owners of their rows"), (2, 3, "weights to all")):
            for start in columns:
                for end in columns:
                    axis.annotate(
                        "", (end, tops[low] + 0.25), (start, tops[high] - 0.25),
                        arrowprops={"arrowstyle": "->", "color": "0.6", "linewidth": 0.8},
                    )  # fmt: skip
            middle = (tops[high] + tops[low]) / 2
            axis.text(4.15, middle, what, ha="left", va="center", fontsize=7.5, color="0.25", style="italic")
        for y, what in ((tops[0], "Q, K from global\nmemory, once"), (tops[3], "V once;\nthe output out")):
            axis.text(4.15, y, what, ha="left", va="center", fontsize=7.5, color="0.25")
    frame = pd.DataFrame(
        [(str(problem), core, shape.cluster, shape.queries, shape.width)],
        columns=["problem", "core", "cluster", "queries", "width"],
    )
    return Plot(
        "v8-idea",
        figure,
        f"The shape is the one chosen for {problem}. Both exchanges, in grey, go from shared memory to shared memory "
        "of the cluster; no score and no rotated value goes through global memory.",
        f"Diagram: each of {shape.cluster} blocks rotates its slice of Q and K, multiplies them, sends the parts of "
        "the scores to the blocks that own their rows, which sum them and send the weights to all; each multiplies "
        "them with its slice of V.",
        frame,
    )


def v8_shapes(frame: pd.DataFrame, gpu: str) -> Plot:
    """Every shape that was tried against the best of its problem, and the one that the rule chose."""
    problems = list(dict.fromkeys(frame["problem"]))
    chosen = frame[frame["chosen"]]
    near = int((chosen["over_best"] < TIE).sum())
    title = (
        f"Of {len(frame)} shapes the rule's choice is the best or within {100 * (TIE - 1):.0f} % of it on {near} of "
        f"{len(chosen)} problems, at worst {100 * (chosen['over_best'].max() - 1):.0f} % behind"
    )
    with _canvas(title, height=1.7 + 0.27 * len(problems)) as (figure, (axis,)):
        axis.axvline(1, color="0.2", lw=1)
        for core, look in CORES.items():
            mine = frame[frame["core"] == core]
            places = [problems.index(problem) for problem in mine["problem"]]
            axis.plot(mine["over_best"], places, ls="", ms=4.5, alpha=0.75, **look)
        places = [problems.index(problem) for problem in chosen["problem"]]
        axis.plot(
            chosen["over_best"], places, ls="", marker="o", ms=9, markerfacecolor="none", color="black",
            label="chosen by the rule", zorder=4,
        )  # fmt: skip
        best = frame.groupby("problem")["median_us"].min()
        axis.set_yticks(range(len(problems)), [f"{problem}   {best[problem]:.1f} µs" for problem in problems])
        axis.set_ylim(len(problems) - 0.5, -0.5)
        axis.grid(visible=True, axis="y", color="0.93")
        _log_ticks(axis, "x", 1, frame["over_best"].max(), "×")
        axis.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 1.2, 1.5, 2, 3, 5)))
        axis.set_xlim(0.95, max(frame["over_best"].max(), 1.1) * 1.05)
        axis.set_xlabel("time over that of the best shape")
        _legend(figure, [axis], columns=3)
    return Plot(
        "v8-shapes",
        figure,
        f"RoPE attention in every shape that was tried, device_warm on the {gpu}, the middle one of three repetitions; "
        "beside each problem the time of the best. A search: differences of a few per cent are noise.",
        "Dot plot of times over the best by problem. "
        + "; ".join(f"{row.problem}: chosen {row.over_best:.2f} times the best" for row in chosen.itertuples())
        + ".",
        frame,
    )


def v8_cuts(frame: pd.DataFrame, gpu: str) -> Plot:
    """What the kernel takes with a part left out."""
    problems, parts = list(dict.fromkeys(frame["problem"])), list(dict.fromkeys(frame["part"]))
    alone = frame[frame["part"] == "only copies and exchanges"]
    shares = ", ".join(f"{100 * row.share:.0f} % at {row.problem}" for row in alone.itertuples())
    title = f"Copies and exchanges alone take this much of the kernel's time: {shares or 'not measured'}"
    with _canvas(title, columns=len(problems), height=3.9, sharey=True) as (figure, axes):
        for axis, problem in zip(axes, problems):
            mine = frame[frame["problem"] == problem]
            places = [parts.index(part) for part in mine["part"]]
            colours = ["0.35" if part == parts[0] else PALETTE[0] for part in mine["part"]]
            axis.barh(places, mine["median_us"], 0.7, color=colours)
            for place, us in zip(places, mine["median_us"]):
                axis.text(us, place, f" {us:.1f}", va="center", ha="left", fontsize=8)
            axis.set_xlim(0, 1.28 * mine["median_us"].max())
            axis.set_title(textwrap.fill(problem, 12), loc="left")
            axis.set_xlabel("µs a call")
            axis.grid(visible=False, axis="y")
            axis.grid(visible=True, axis="x", color="0.93")
            axis.locator_params(axis="x", nbins=4)
        axes[0].set_yticks(range(len(parts)), parts)
        axes[0].set_ylim(len(parts) - 0.5, -0.5)
    return Plot(
        "v8-cuts",
        figure,
        "The kernel that the rule chooses, in grey, and the same with a part left out, whose result is then wrong and "
        f"not checked. device_warm on the {gpu}. Parts overlap in time, so that what they save does not add up.",
        "Bars of time by part left out. "
        + "; ".join(f"{row.problem}, {row.part}: {row.median_us:.1f} µs" for row in frame.itertuples())
        + ".",
        frame,
    )


def v8_family(frame: pd.DataFrame, gpu: str) -> Plot:
    """The family of V8, the fastest peer and the log's V7 over full fusion, at every problem."""
    problems = list(dict.fromkeys(frame["problem"]))
    own = frame.set_index(["problem", "series"])["median_us"].xs("rope_v8", level="series")
    peers = frame[frame["series"] == "peer"]["over_v8"]
    fused = frame[frame["series"].isin((cost_model.HYBRID, cost_model.SEPARATE))].groupby("problem")["over_v8"].min()
    title = (
        f"Full fusion is as fast as hybrid and separate, or faster, on {int((fused > 1 / TIE).sum())} of {len(fused)}"
    )
    title += f" problems; the fastest peer takes {span(peers, 1)}× as long" if len(peers) else " problems"
    kinds = frame.drop_duplicates("problem").set_index("problem")["kind"]
    with _canvas(title, height=1.9 + 0.25 * len(problems)) as (figure, (axis,)):
        axis.axvline(1, color=PALETTE[0], lw=1.5, label="full fusion (rope_v8)")
        for series, look in V8_SERIES.items():
            mine = frame[frame["series"] == series]
            axis.plot(mine["over_v8"], [problems.index(problem) for problem in mine["problem"]], ls="", ms=5, **look)
        for place in range(1, len(problems)):
            if kinds[problems[place]] != kinds[problems[place - 1]]:
                axis.axhline(place - 0.5, color="0.6", lw=0.8)
        axis.set_yticks(range(len(problems)), [f"{problem}   {own[problem]:.1f} µs" for problem in problems])
        axis.set_ylim(len(problems) - 0.5, -0.5)
        axis.grid(visible=True, axis="y", color="0.93")
        low, high = frame["over_v8"].min(), frame["over_v8"].max()
        _log_ticks(axis, "x", low, high, "×")
        axis.set_xlim(low / 1.15, high * 1.15)
        axis.set_xlabel("time over that of full fusion")
        _legend(figure, [axis], columns=3)
    return Plot(
        "v8-family",
        figure,
        f"Right of the line: slower than rope_v8, whose time stands beside each problem. device_warm on the {gpu}; "
        "hybrid, separate and full fusion share one core. Only right results are there.",
        "Dot plot of times over rope_v8 by problem. "
        + "; ".join(
            f"{problem}: " + ", ".join(f"{row.series} {row.over_v8:.2f}" for row in mine.itertuples())
            for problem, mine in frame[frame["series"] != "rope_v8"].groupby("problem", sort=False)
        )
        + ".",
        frame,
    )


def v8_embeddings(frame: pd.DataFrame, gpu: str) -> Plot:
    """What each embedding adds to attention without any, on one core, and how exact its stored table is."""
    problems, names = list(dict.fromkeys(frame["problem"])), list(dict.fromkeys(frame["embedding"]))
    added = frame[frame["embedding"] != "none"]["over_none"]
    title = f"Embedded on the way, attention takes {span(added)}× the time of attention without" if len(added) else ""
    errors = frame[frame["table_error"] > 0].groupby("embedding")["table_error"].max()
    labels = [f"{name}   ±{errors[name]:.0e}" if name in errors else name for name in names]
    with _canvas(title, columns=max(len(problems), 1), height=1.7 + 0.27 * len(names), sharey=True) as (figure, axes):
        for axis, problem in zip(axes, problems):
            mine = frame[frame["problem"] == problem]
            places = [names.index(name) for name in mine["embedding"]]
            axis.axvline(1, color="0.2", lw=1)
            axis.hlines(places, mine["low"], mine["high"], color=PALETTE[0], lw=1.2)
            axis.plot(mine["over_none"], places, ls="", marker="o", ms=5, color=PALETTE[0])
            axis.set_title(textwrap.fill(problem, 12), loc="left")
            axis.set_xlabel("time over none")
            axis.grid(visible=True, axis="y", color="0.93")
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
            axis.locator_params(axis="x", nbins=3)
        axes[0].set_yticks(range(len(names)), labels)
        axes[0].set_ylim(len(names) - 0.5, -0.5)
    return Plot(
        "v8-embeddings",
        figure,
        f"Time over that of attention without an embedding in the same process, device_warm on the {gpu}, with the "
        "95 % interval over the processes; all dims are embedded. ±: how far a stored value is at most from the exact.",
        "Dot plot of times over attention without an embedding. "
        + "; ".join(f"{row.problem}, {row.embedding}: {row.over_none:.2f} times" for row in frame.itertuples())
        + ".",
        frame,
    )


# ---------------------------------------------------------------- saving


def folder(slug: str) -> Path:
    """Where figures go: into the repository for the GPU that the book shows by default, else into the build."""
    return FOLDER if slug == DEFAULT_GPU else OTHER / slug


def save(plot: Plot, where: Path) -> None:
    """Write `where`/<id>.svg, .png, .pdf and .csv, byte for byte the same for the same data."""
    where.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for suffix, metadata in FORMATS.items():
            content = io.BytesIO()
            plot.figure.savefig(content, format=suffix, metadata=metadata, dpi=200)
            _write(where / f"{plot.id}.{suffix}", content.getvalue())
    table = plot.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    _write(where / f"{plot.id}.csv", table.encode())


def _write(path: Path, content: bytes) -> None:
    """In one step: two notebooks may save the same figure at the same time."""
    temporary = path.with_suffix(f"{path.suffix}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def to_html(plot: Plot, where: Path, gpu: str, commit: str) -> str:
    """The saved figure with caption, alt text and how to cite it."""
    image = base64.b64encode((where / f"{plot.id}.svg").read_bytes()).decode()
    link = f"<a href='{PUBLISHED_AT}/{plot.id}"
    links = ", ".join(f"{link}.{suffix}'>{suffix.upper()}</a>" for suffix in (*FORMATS, "csv"))
    entry = (
        f"@misc{{fused-positional-embeddings-{plot.id},\n"
        "  title = {Fusing Positional Embeddings into Attention Kernels: an executable edition},\n"
        "  author = {{the fused-positional-embeddings authors}},\n"
        f"  note = {{Figure {plot.id}, measured on {gpu}, commit {commit}}},\n"
        "}"
    )
    return (
        f"<figure class='evidence' id='figure-{plot.id}'>"
        f"<img src='data:image/svg+xml;base64,{image}' alt='{escape(plot.alt, quote=True)}'>"
        f"<figcaption>{escape(plot.caption)}</figcaption>"
        f"<details><summary>Cite this figure</summary><p>{links}. Measured on {escape(gpu)}, commit "
        f"<code>{escape(commit)}</code>.</p><pre>{escape(entry)}</pre></details></figure>"
    )
