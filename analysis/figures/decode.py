"""Decode: time and error of a step by the number of keys, with raw keys that are rotated as they are read."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from ..evidence import Estimate, Evidence, measured
from ..findings.decode import GRAPH, RAW, STUDY, UNROTATED, step
from ..models.rivals import right
from ..studies import FLASHINFER, LONGEST, SWEPT
from ..tables.table import Missing
from .style import PALETTE, Plot, canvas, legend, log_ticks

DTYPES = ("float32", "float16")


class Line(NamedTuple):
    label: str
    versions: dict[str, str]  # by dtype
    rotates: bool  # as it reads the keys
    look: dict[str, Any]


LINES = (
    Line("PyTorch, raw keys", GRAPH, True, {"color": PALETTE[1], "marker": "s"}),
    Line(
        "PyTorch, autotuned",
        {dtype: f"{name}_autotuned" for dtype, name in GRAPH.items()},
        True,
        {"color": PALETTE[1], "marker": "*", "ls": "", "ms": 13, "mec": "0.15", "zorder": 4},
    ),
    Line("FlashInfer, raw keys", {"float16": "flashinfer_rope"}, True, {"color": PALETTE[3], "marker": "v"}),
    Line("FlashInfer, rotated keys", {"float16": "flashinfer"}, False, {"color": PALETTE[3], "marker": "v", "ls": ":"}),
    Line("cuDNN, rotated keys", {"float16": "torch_sdpa_half_cudnn"}, False, {"color": PALETTE[2], "marker": "^"}),
    Line(
        "ours, rotated keys", dict.fromkeys(DTYPES, UNROTATED), False, {"color": PALETTE[0], "marker": "o", "ls": ":"}
    ),
    Line("ours, raw keys", dict.fromkeys(DTYPES, RAW), True, {"color": PALETTE[0], "marker": "o"}),
)


def _times(e: Evidence, dtype: str) -> Iterator[tuple[str, str, int, Estimate]]:
    for line in LINES:
        name = line.versions.get(dtype, "")
        for keys in SWEPT if name else ():
            problem = step(dtype, keys, line.rotates)
            if right(e, STUDY, problem, name):
                us = e.time(name, STUDY, "device_cold", problem=problem)[problem]
                if us:
                    yield line.label, name, keys, us


def _keys(axis: Axes, ticks: list[int], words: str) -> None:
    """The axis of the number of keys."""
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda keys, _: f"{keys:,.0f}")
    axis.set_xlabel(words, loc="left")


def decode_time(e: Evidence) -> Plot | Missing:
    """Time of a step by the number of keys, caches cold; below all, reading K and V."""
    rows = [
        (dtype, label, name, keys, us.value, us.low, us.high)
        for dtype in DTYPES
        for label, name, keys, us in _times(e, dtype)
    ]
    if not rows:
        return Missing.study(STUDY)
    frame = pd.DataFrame(rows, columns=["dtype", "series", "version", "keys", "us", "low", "high"])
    ceilings = e.gpu["ceilings"]
    size = frame["dtype"].map({"float32": 4, "float16": 2})
    frame["reading_us"] = ceilings["empty_kernel_us"] + 2 * size * 8 * 128 * frame["keys"] / ceilings["read_gb_s"] / 1e3
    title = "Rotating raw keys costs little"
    with canvas(title, 2, height=5, sharex=True, height_ratios=(2, 1)) as (figure, (above, below)):
        above.axhline(1, color="0.5", ls="--", lw=1.5)
        for line in LINES:
            points = frame[(frame["dtype"] == "float16") & (frame["series"] == line.label)]
            above.plot(points["keys"], points["us"] / points["reading_us"], label=line.label, lw=1.5, **line.look)
        log_ticks(above, "y", 1, 10, "×")
        above.set_title("time of a step in float16; dashed: the least possible", loc="left", fontsize=9.5)
        for dtype, filled in zip(DTYPES, (None, "w")):
            mine = frame[frame["dtype"] == dtype]
            raw, rotated = (mine[mine["series"] == line.label].set_index("keys")["us"] for line in LINES[:-3:-1])
            added = 100 * (raw / rotated - 1)
            below.plot(added.index, added, "o-", color=PALETTE[0], ms=4, mfc=filled)
            below.annotate(dtype, (added.index[0], added.iloc[0]), (6, 4), textcoords="offset points", fontsize=8.5)
        below.set_title("what rotating adds to ours", loc="left", fontsize=9.5)
        below.margins(y=0.3)
        below.yaxis.set_major_formatter(lambda share, _: f"{share:.0f} %")
        _keys(below, [SWEPT[0], 1024, 4096, 16384, SWEPT[-1]], "keys")
        legend(figure, [above], size=8.5)
    return Plot(
        "decode-time",
        figure,
        "One query in a layer of LLaMA, on the GPU alone; K and V are read from memory, not from L2. The least "
        "possible is an empty launch and one read of K and V. Autotuned: PyTorch first tried several kernels. The CSV "
        f"has times in float32, too.{_left_out(e)}",
        "Lines of time over that of reading K and V, by the number of keys, in float16. Ours with raw keys lies just "
        "above ours with rotated keys; PyTorch lies several times above. FlashInfer comes near ours with rotated keys, "
        "and stays well above with raw ones. Below, what rotating adds, in percent: little in float32, and less with "
        "more keys in float16.",
        frame,
        measured(e, STUDY),
    )


def _left_out(e: Evidence) -> str:
    """Which points of FlashInfer are not drawn, as its results are wrong there."""
    wrong = [
        f"{keys:,}" for keys in SWEPT
        if (check := e.study(STUDY).check(FLASHINFER[0], step("float16", keys))) and check.status != "ok"
    ]  # fmt: skip
    too_far = f" FlashInfer's time for {' and '.join(wrong)} raw keys is left out: its error there exceeds our limit."
    return too_far if wrong else ""


def decode_error(e: Evidence) -> Plot | Missing:
    """Relative error of a step by the position of its query."""
    rows = []
    for dtype in DTYPES:
        drawn = [("ours", RAW), ("PyTorch, one graph", GRAPH[dtype]), ("FlashInfer", "flashinfer_rope")]
        for label, name in drawn[: 3 if dtype == "float16" else 2]:
            for problem in (*(step(dtype, keys) for keys in SWEPT), step(dtype, LONGEST, heads=4, kv_heads=1)):
                if e.study(STUDY).check(name, problem):
                    err = e.relative_error(name, STUDY, problem=problem)[problem]
                    rows.append((dtype, f"{label}, {dtype}", name, problem.seq_k, err.value))
    frame = pd.DataFrame(rows, columns=["dtype", "series", "version", "keys", "relative_err"]).dropna()
    if frame.empty:
        return Missing.study(STUDY)
    title = "Angles in float32 drift with the position; ours do not"
    with canvas(title, height=3.9) as (figure, (axis,)):
        for (series, points), marker in zip(frame.groupby("series", sort=False), "ososv"):
            half, color = series.endswith("16"), {"ours": 0, "FlashInfer": 3}.get(series.partition(",")[0], 1)
            look = {"color": PALETTE[color], "ls": ":" if half else "-", "mfc": "w" if half else None}
            axis.plot(points["keys"], points["relative_err"], marker=marker, label=series, **look)
        log_ticks(axis, "y", 1e-8, 1e-2)
        _keys(axis, [256, 4096, 65_536, LONGEST], "keys, and the position of the query")
        axis.set_ylabel("relative error")
        legend(figure, [axis], size=8)
    return Plot(
        "decode-error",
        figure,
        "Error relative to float64 (a ratio of norms), for the worse of our two kinds of inputs. Heads as in "
        "the figure of times; at the last point 4 heads share one of K and V. PyTorch rotates by tables whose "
        "angles are float32 products, as models make them; FlashInfer's angles are such products too.",
        "Lines of the relative error by the number of keys. Those of PyTorch rise by a factor of hundreds in float32; "
        "ours stay below one millionth in float32 and below one thousandth in float16.",
        frame,
        measured(e, STUDY),
    )
