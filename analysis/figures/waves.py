"""V7 over separate kernels by the number of heads: it wins where these need a wave of blocks more than V7."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ..evidence import Evidence, computed, measured
from ..models.waves import SEPARATE, V7, held, places, waves, waves_in_slice
from ..record.timers import timer_of
from ..studies import MAIN, SLICE, STUDIES
from ..tables.table import missing
from .style import FUSED, THEIRS, WAITS, Plot, canvas

DIMS: dict[int, dict[str, Any]] = {2048: {"lw": 2, "ms": 5}, 512: {"lw": 1, "ms": 3, "mfc": "w"}}


def wave(e: Evidence) -> Plot | str:
    """V7's speedup with more and more heads; shaded where separate kernels need a wave more."""
    names = ["hdim", "heads", "blocks", "waves_v7", "waves_separate", "speedup", "low", "high"]
    rows = [
        (
            *(problem.hdim, problem.heads, problem.heads * problem.seq_q),
            *(waves(e, version, problem) for version in (V7, SEPARATE)),
            *(ratio.value, ratio.low, ratio.high),
        )
        for problem, ratio in e.speedup(
            V7, SEPARATE, "waves", "device_warm", problem=e.study("waves").problems("rope")
        ).items()
        if ratio
    ]
    if not rows:
        return missing("waves")
    frame = pd.DataFrame(rows, columns=names).sort_values(["hdim", "heads"])
    most = frame["heads"].max() + 0.6
    v7, separate = (held(e, name, MAIN.hdim)[MAIN.hdim].value / MAIN.seq_q for name in (V7, SEPARATE))
    title = f"Up to {frame['heads'].max()} heads, V7 wins in two windows"
    with canvas(title, height=3.2) as (figure, (axis,)):
        _windows(axis, v7, separate, most)
        _lines(axis, frame, FUSED)
        _marked(axis, {"their shapes": MAIN.heads}, "heads of 64 queries")
        axis.set_xlim(1.5, most)
        axis.set_ylim(bottom=frame["speedup"].min() - 0.1)
    return Plot(
        "wave",
        figure,
        "V7 over separate kernels on the GPU alone. Shaded: separate kernels need one wave of blocks more than V7, "
        f"computed from the registers at head dim {MAIN.hdim}. All {e.gpu['sms']} SMs.",
        "Line of V7's speedup over separate kernels by the number of heads. It rises well above 1 in two shaded "
        "windows and lies near or below 1 elsewhere.",
        frame,
        measured(e, "waves") + computed("waves by the compiler's report"),
    )


def wave_heads(e: Evidence) -> Plot | str:
    """V7's speedup by heads in a slice of as many SMs as the authors' card has; their four heads marked."""
    problems, timer = e.study("slices_heads").problems("rope"), f"device_warm@{SLICE}"
    found = e.speedup(V7, SEPARATE, "slices_heads", timer, problem=problems).items()
    rows = [(p.hdim, p.heads, ratio.value, ratio.low, ratio.high) for p, ratio in found if ratio]
    if not rows:
        return missing("slices_heads")
    frame = pd.DataFrame(rows, columns=["hdim", "heads", "speedup", "low", "high"]).sort_values(["hdim", "heads"])
    v7, separate = (places(e, name) / MAIN.seq_q for name in (V7, SEPARATE))
    with canvas(f"On {SLICE} SMs V7 peaks at their four heads", height=3.0) as (figure, (axis,)):
        _windows(axis, v7, separate, frame["heads"].max() + 0.4)
        _lines(axis, frame, THEIRS)
        _marked(axis, {"their heads": MAIN.heads}, "heads of 64 queries")
        axis.set_xticks(range(1, frame["heads"].max() + 1))
        axis.set_ylim(bottom=frame["speedup"].min() - 0.1)
    return Plot(
        "wave-heads",
        figure,
        f"V7 over separate kernels on the GPU alone, on {SLICE} SMs, as many as the authors' card has. Above the line "
        "V7 is faster. Thin: head dim 512. Shaded: separate kernels need one wave of blocks more, as the next section "
        "explains.",
        "Line of V7's speedup by the number of heads. It peaks at four heads and lies below 1 at three and five.",
        frame,
        measured(e, "slices_heads") + computed("waves by the compiler's report"),
    )


def wave_sms(e: Evidence) -> Plot | str:
    """V7's speedup at the documents' shape by the number of SMs of a slice; theirs and the whole card marked."""
    whole = int(e.gpu["sms"])
    by_sms = {timer_of(timer).sms or whole: timer for timer in STUDIES["slices_sms"].timers}
    ratios = {sms: e.speedup(V7, SEPARATE, "slices_sms", name, problem=MAIN)[MAIN] for sms, name in by_sms.items()}
    rows = [(sms, ratio.value, ratio.low, ratio.high) for sms, ratio in sorted(ratios.items()) if ratio]
    if not rows:
        return missing("slices_sms")
    frame = pd.DataFrame(rows, columns=["sms", "speedup", "low", "high"])
    with canvas(f"Of {len(frame) - 1} slices, that of {SLICE} SMs favours V7 most", height=2.7) as (figure, (axis,)):
        for first, last in _more(e, int(frame["sms"].min()), whole):
            axis.axvspan(first - 0.5, last + 0.5, color=WAITS, alpha=0.2, lw=0)
        axis.plot(frame["sms"], frame["speedup"], "o-", color=THEIRS, **DIMS[MAIN.hdim])
        _marked(axis, {"their card": SLICE, "this card": whole}, "SMs")
    return Plot(
        "wave-sms",
        figure,
        f"V7 over separate kernels at their shape, head dim {MAIN.hdim}, on the GPU alone, by the number of SMs of the "
        "slice. Shaded: separate kernels need a wave more.",
        "Line of V7's speedup by SMs. It peaks at 48 and ends well below 1 on the whole card.",
        frame,
        measured(e, "slices_sms") + computed("waves by the compiler's report"),
    )


def _more(e: Evidence, least: int, most: int) -> Iterator[tuple[int, int]]:
    """The ranges of SMs on which separate kernels need more waves than V7 at the documents' shape."""

    def saves(sms: int) -> bool:
        return waves_in_slice(e, SEPARATE, sms) > waves_in_slice(e, V7, sms)

    for more, sms in itertools.groupby(range(least, most + 1), saves):
        if more:
            run = list(sms)
            yield run[0], run[-1]


def _windows(axis: Any, v7: float, separate: float, most: float) -> None:
    """Shaded numbers of heads for which separate kernels need a wave more; so many heads of each run at once."""
    for count in range(1, round(most / separate) + 1):
        first, last = separate * count, min(v7 * count, most)
        if first < last:
            axis.axvspan(first, last, color=WAITS, alpha=0.2, lw=0)
            low: dict[str, Any] = {"va": "bottom", "transform": axis.get_xaxis_transform()}
            axis.text((first + last) / 2, 0.02, f"{count + 1} waves\nfor {count}", ha="center", fontsize=7.5, **low)


def _lines(axis: Any, frame: pd.DataFrame, color: Any) -> None:
    """V7's speedup by heads, a line for each head dim with its name at the end."""
    for hdim, look in DIMS.items():
        mine = frame[frame["hdim"] == hdim]
        axis.plot(mine["heads"], mine["speedup"], "o-", color=color, **look)
        if len(mine):
            place, up = mine.iloc[0], -13 if hdim == MAIN.hdim else 9
            at = (place["heads"], place["speedup"])
            axis.annotate(f"dim {hdim}", at, (-4, up), textcoords="offset points", fontsize=8)


def _marked(axis: Any, places: Mapping[str, int], words: str) -> None:
    """The line at 1, dotted lines at places with their words above, and the names of the axes."""
    axis.axhline(1, color="black", lw=1)
    for word, place in places.items():
        axis.axvline(place, 0.2, color="0.3", lw=1, ls=":")
        axis.text(place, 1.01, word, ha="center", fontsize=8.5, transform=axis.get_xaxis_transform())
    axis.set_xlabel(words, loc="left")
    axis.set_ylabel("speedup of V7")
