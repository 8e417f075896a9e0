"""Decode: time and error of a step by the number of keys, with raw keys that are rotated as they are read."""

from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogFormatterSciNotation, NullLocator

from ..evidence import Evidence, measured
from ..findings.decode import GRAPH, RAW, STUDY, UNROTATED, step
from ..models.rivals import right
from ..studies import FLASHINFER, LONGEST, SWEPT
from ..tables.table import missing
from .style import FUSED, LIBRARY, PALETTE, Plot, canvas, log_ticks

DTYPES = ("float32", "float16")
FLASH, CUDNN = PALETTE[4], PALETTE[2]


class Line(NamedTuple):
    label: str
    versions: dict[str, str]  # by dtype
    rotates: bool  # as it reads the keys
    look: dict[str, Any]


LINES = (
    Line("PyTorch, raw keys", GRAPH, True, {"color": LIBRARY, "marker": "s"}),
    Line("FlashInfer, raw keys", {"float16": "flashinfer_rope"}, True, {"color": FLASH, "marker": "v"}),
    Line("FlashInfer, rotated", {"float16": "flashinfer"}, False, {"color": FLASH, "marker": "v", "ls": ":"}),
    Line("cuDNN, rotated", {"float16": "torch_sdpa_half_cudnn"}, False, {"color": CUDNN, "marker": "^", "ls": ":"}),
    Line("ours, rotated", dict.fromkeys(DTYPES, UNROTATED), False, {"color": FUSED, "marker": "o", "ls": ":"}),
    Line("ours, raw keys", dict.fromkeys(DTYPES, RAW), True, {"color": FUSED, "marker": "o"}),
)
NUDGED = {"FlashInfer, rotated": 15, "cuDNN, rotated": 3, "ours, raw keys": -9}  # points, of names that would meet
ERRORS: dict[str, dict[str, Any]] = {
    "ours": {"color": FUSED, "marker": "o"},
    "PyTorch": {"color": LIBRARY, "marker": "s"},
    "FlashInfer": {"color": FLASH, "marker": "v"},
}
BESIDE = {"ours": (-6, -13), "PyTorch": (14, -22), "FlashInfer": (-8, 3)}  # points, of names from where lines end
TICKS = [256, 1024, 4096, 16384, 131072]
DRAWN = tuple(line.label for line in LINES if line.label != "ours, rotated")


def _keys(axis: Axes, ticks: list[int], words: str) -> None:
    """The axis of the number of keys."""
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda keys, _: f"{keys:,.0f}")
    axis.set_xlabel(words, loc="left")


def _steps(e: Evidence) -> pd.DataFrame:
    """Times of a step, caches cold, beside the least that reading K and V takes."""
    rows = [
        (dtype, line.label, name, keys, us.value, us.low, us.high)
        for dtype in DTYPES
        for line in LINES
        if (name := line.versions.get(dtype))
        for keys in SWEPT
        if right(e, STUDY, problem := step(dtype, keys, line.rotates), name)
        and (us := e.time(name, STUDY, "device_cold", problem=problem)[problem])
    ]
    frame = pd.DataFrame(rows, columns=["dtype", "series", "version", "keys", "us", "low", "high"])
    ceilings = e.gpu["ceilings"]
    size = frame["dtype"].map({"float32": 4, "float16": 2})
    frame["reading_us"] = ceilings["empty_kernel_us"] + 2 * size * 8 * 128 * frame["keys"] / ceilings["read_gb_s"] / 1e3
    return frame


def decode_time(e: Evidence) -> Plot | str:
    """Time of a step in float16 over that of reading K and V, by the number of keys."""
    frame = _steps(e)
    if frame.empty:
        return missing(STUDY)
    with canvas("Ours on raw keys keeps up with cuDNN on rotated ones", height=3.6) as (figure, (axis,)):
        axis.axhline(1, color="0.5", ls="--", lw=1.5)
        read: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8.5}
        axis.annotate("one read of K and V", (SWEPT[0], 1), (0, 3), color="0.35", **read)
        for line in LINES:
            points = frame[(frame["dtype"] == "float16") & (frame["series"] == line.label)]
            if line.label in DRAWN and len(points):
                axis.plot(points["keys"], points["us"] / points["reading_us"], lw=1.5, **line.look)
                end = points.iloc[-1]
                at, aside = (end["keys"], end["us"] / end["reading_us"]), (6, NUDGED.get(line.label, -3))
                axis.annotate(line.label, at, aside, color=line.look["color"], **read)
        log_ticks(axis, "y", 1, 10, "×")
        axis.set_ylim(bottom=0.75)
        axis.set_ylabel("time over the least possible")
        _keys(axis, TICKS, "keys")
        axis.set_xlim(right=9 * SWEPT[-1])
    return Plot(
        "decode-time",
        figure,
        "One query in a layer of LLaMA, float16, on the GPU alone; K and V are read from memory, not from L2. The "
        "least possible is an empty launch and one read of K and V. Solid: raw keys; dotted: keys that are rotated "
        f"already. The CSV has ours on rotated keys, and float32.{_left_out(e)}",
        "Lines of time over that of reading K and V, by the number of keys, in float16. Ours with raw keys is lowest. "
        "With many keys cuDNN and FlashInfer with rotated ones come near it; FlashInfer and PyTorch with raw keys stay "
        "above.",
        frame,
        measured(e, STUDY),
    )


def decode_added(e: Evidence) -> Plot | str:
    """The share that rotating raw keys adds to the time of our step, by the number of keys."""
    wide = _steps(e).pivot_table("us", ["dtype", "keys"], "series", sort=False)
    raw, rotated = (wide.get(name, pd.Series(dtype=float)) for name in ("ours, raw keys", "ours, rotated"))
    frame = (100 * (raw / rotated - 1)).dropna().rename("added_percent").reset_index()
    if frame.empty:
        return missing(STUDY)
    with canvas("Rotating the keys adds about a tenth at worst", height=2.6) as (figure, (axis,)):
        axis.axhline(0, color="0.2", lw=1)
        for dtype, filled in zip(DTYPES, (None, "w")):
            mine = frame[frame["dtype"] == dtype]
            axis.plot(mine["keys"], mine["added_percent"], "o-", color=FUSED, ms=5, mfc=filled)
            start = mine.iloc[0]
            axis.annotate(
                dtype, (start["keys"], start["added_percent"]), (0, 6), textcoords="offset points", fontsize=8.5
            )
        axis.margins(y=0.25)
        axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0f} %")
        axis.set_ylabel("added by rotating")
        _keys(axis, TICKS, "keys")
        axis.set_xlim(right=2 * SWEPT[-1])
    return Plot(
        "decode-added",
        figure,
        "Our step on raw keys beside the same on rotated ones: one query in a layer of LLaMA, K and V from memory.",
        "Two lines of what rotating adds to a step, in percent, by the number of keys. In float32 it stays near 0, in "
        "float16 it falls towards 0.",
        frame,
        measured(e, STUDY),
    )


def _left_out(e: Evidence) -> str:
    """Which points of FlashInfer are not drawn, as its results are wrong there."""
    wrong = [
        f"{keys:,}" for keys in SWEPT
        if (check := e.study(STUDY).check(FLASHINFER[0], step("float16", keys))) and check.status != "ok"
    ]  # fmt: skip
    keys = " and ".join(wrong)
    too_far = f" FlashInfer's time for {keys} raw keys is left out: its error there is more than our check allows."
    return too_far if wrong else ""


def decode_error(e: Evidence) -> Plot | str:
    """Relative error of a step by the position of its query, a panel a dtype."""
    rows = []
    for dtype in DTYPES:
        drawn = {"ours": RAW, "PyTorch": GRAPH[dtype], "FlashInfer": FLASHINFER[0]}  # which has no float32
        for label, name in drawn.items():
            for problem in (*(step(dtype, keys) for keys in SWEPT), step(dtype, LONGEST, heads=4, kv_heads=1)):
                if e.study(STUDY).check(name, problem):
                    err = e.relative_error(name, STUDY, problem=problem)[problem]
                    rows.append((dtype, label, name, problem.seq_k, err.value))
    frame = pd.DataFrame(rows, columns=["dtype", "series", "version", "keys", "relative_err"]).dropna()
    if frame.empty:
        return missing(STUDY)
    title = "Angles in float32 drift with the position; ours do not"
    with canvas(title, 1, len(DTYPES), height=3.2, sharey=True) as (figure, axes):
        for axis, dtype in zip(axes, DTYPES):
            for series, points in frame[frame["dtype"] == dtype].groupby("series", sort=False):
                look = ERRORS[str(series)]
                axis.plot(points["keys"], points["relative_err"], lw=1.5, ms=5, **look)
                end = (points["keys"].iloc[-1], points["relative_err"].iloc[-1])
                style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8.5, "ha": "right"}
                axis.annotate(series, end, BESIDE[str(series)], color=look["color"], **style)
            log_ticks(axis, "y", 1e-8, 1e-2)
            axis.yaxis.set_major_formatter(LogFormatterSciNotation())
            _keys(axis, [1024, 32_768, LONGEST], "")
            axis.set_title(dtype, loc="left")
        axes[0].set_xlabel("keys, and the position of the query", loc="left")
        axes[0].set_ylabel("relative error")
    return Plot(
        "decode-error",
        figure,
        "Error relative to float64 (a ratio of norms), for the worse of our two kinds of inputs. Heads as in "
        "the figure of times; at the last point 4 heads share one of K and V. PyTorch rotates by tables whose "
        "angles are float32 products, as models make them; FlashInfer's angles are such products too. In float16 "
        "rounding hides the drift of the angles up to some thousand keys.",
        "Lines of the relative error by the number of keys, a panel a dtype. Those of PyTorch and FlashInfer rise with "
        "the position; ours stay below one millionth in float32 and below one thousandth in float16.",
        frame,
        measured(e, STUDY),
    )
