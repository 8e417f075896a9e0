"""V8 measured: its shapes, its parts, its family and peers, its embeddings."""

from __future__ import annotations

import textwrap

import pandas as pd
from matplotlib.ticker import FuncFormatter, LogLocator

from ...models import fit
from ...records.interval import TIE
from ...records.text import span
from ..style import PALETTE, Plot, Source, canvas, legend, log_ticks, looks

V8_SERIES = looks(
    (fit.HYBRID, 1, "s", "hybrid"),
    (fit.SEPARATE, 2, "^", "separate"),
    ("rope_v8_mma", 9, "v", "full, core of warps"),
    ("rope_v8_portable", 8, "D", "full, portable core"),
    ("rope_v7", 4, "P", "the log's V7"),
    ("peer", 3, "X", "fastest peer"),
)
CORES = looks(("wgmma", 0, "o", "core of warpgroups"), ("mma", 1, "s", "core of warps"))


def v8_shapes(frame: pd.DataFrame, gpu: str, source: Source) -> Plot:
    """Every shape that was tried against the best of its problem, and the one that the rule chose."""
    problems = list(dict.fromkeys(frame["problem"]))
    chosen = frame[frame["chosen"]]
    near = int((chosen["over_best"] < TIE).sum())
    title = (
        f"Of {len(frame)} shapes the rule's choice is the best or within {100 * (TIE - 1):.0f} % of it on {near} of "
        f"{len(chosen)} problems, at worst {100 * (chosen['over_best'].max() - 1):.0f} % behind"
    )
    with canvas(title, height=1.7 + 0.27 * len(problems)) as (figure, (axis,)):
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
        log_ticks(axis, "x", 1, frame["over_best"].max(), "×")
        axis.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 1.2, 1.5, 2, 3, 5)))
        axis.set_xlim(0.95, max(frame["over_best"].max(), 1.1) * 1.05)
        axis.set_xlabel("time over that of the best shape")
        legend(figure, [axis], columns=3)
    return Plot(
        "v8-shapes",
        figure,
        f"RoPE attention in every shape that was tried, device_warm on the {gpu}, the middle one of three repetitions; "
        "beside each problem the time of the best. A search: differences of a few per cent are noise.",
        "Dot plot of times over the best by problem. "
        + "; ".join(f"{row.problem}: chosen {row.over_best:.2f} times the best" for row in chosen.itertuples())
        + ".",
        frame,
        source,
    )


def v8_cuts(frame: pd.DataFrame, gpu: str, source: Source) -> Plot:
    """What the kernel takes with a part left out."""
    problems, parts = list(dict.fromkeys(frame["problem"])), list(dict.fromkeys(frame["part"]))
    alone = frame[frame["part"] == "only copies and exchanges"]
    shares = ", ".join(f"{100 * row.share:.0f} % at {row.problem}" for row in alone.itertuples())
    title = f"Copies and exchanges alone take this much of the kernel's time: {shares or 'not measured'}"
    with canvas(title, columns=len(problems), height=3.9, sharey=True) as (figure, axes):
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
        source,
    )


def v8_family(frame: pd.DataFrame, gpu: str, source: Source) -> Plot:
    """The family of V8, the fastest peer and the log's V7 over full fusion, at every problem."""
    problems = list(dict.fromkeys(frame["problem"]))
    own = frame.set_index(["problem", "series"])["median_us"].xs("rope_v8", level="series")
    peers = frame[frame["series"] == "peer"]["over_v8"]
    fused = frame[frame["series"].isin((fit.HYBRID, fit.SEPARATE))].groupby("problem")["over_v8"].min()
    title = (
        f"Full fusion is as fast as hybrid and separate, or faster, on {int((fused > 1 / TIE).sum())} of {len(fused)}"
    )
    title += f" problems; the fastest peer takes {span(peers, '×', 1)} as long" if len(peers) else " problems"
    kinds = frame.drop_duplicates("problem").set_index("problem")["kind"]
    with canvas(title, height=1.9 + 0.25 * len(problems)) as (figure, (axis,)):
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
        log_ticks(axis, "x", low, high, "×")
        axis.set_xlim(low / 1.15, high * 1.15)
        axis.set_xlabel("time over that of full fusion")
        legend(figure, [axis], columns=3)
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
        source,
    )


def v8_embeddings(frame: pd.DataFrame, gpu: str, source: Source) -> Plot:
    """What each embedding adds to attention without any, on one core, and how exact its stored table is."""
    problems, names = list(dict.fromkeys(frame["problem"])), list(dict.fromkeys(frame["embedding"]))
    added = frame[frame["embedding"] != "none"]["over_none"]
    title = (
        f"Embedded on the way, attention takes {span(added, '×', 2)} the time of attention without"
        if len(added)
        else ""
    )
    errors = frame[frame["table_error"] > 0].groupby("embedding")["table_error"].max()
    labels = [f"{name}   ±{errors[name]:.0e}" if name in errors else name for name in names]
    with canvas(title, columns=max(len(problems), 1), height=1.7 + 0.27 * len(names), sharey=True) as (figure, axes):
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
        source,
    )
