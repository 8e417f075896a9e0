"""Pictures of how the hardware shares out work: floats in sectors, blocks in waves, words in banks."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from ..evidence import Evidence, Source, computed
from ..models import waves
from ..models.waves import LOG_BLOCKS, SEPARATE, V7
from ..studies import AUTHORS_SMS, MAIN
from .style import FUSED, WAITS, Plot, canvas, key

DARK, LIGHT, LATE, NONE = FUSED, "#cfe0ee", WAITS, "0.93"
FREE: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.45", "hatch": "///", "lw": 0.8}
BEHIND: dict[str, Any] = {"fc": "white", "ec": "none", "pad": 1}  # a number
FLOATS, BANKS = 8, 32  # floats of a sector; banks, each as wide as a word of four bytes
ROWS, PADDING = 16, 2  # rows of a tile that are read at once, two words each; words of padding after a row


class Span(NamedTuple):
    """Neighbouring cells of a row of a panel, and what they are."""

    panel: str
    row: int
    start: int
    length: int
    kind: str


def sector() -> Plot:
    """Sectors that a load of neighbouring threads transfers, and the bytes of them that it uses."""
    kinds = {"taken by this load": DARK, "brought with it, asked for again later": LIGHT, "the next sector": NONE}
    spans = [
        Span(panel, thread, *cells, kind)
        for panel, width in (("one float a load: 8 loads a sector", 1), ("a float4 a load: 2 loads a sector", 4))
        for thread in range(6)
        for cells, kind in zip(((0, width), (width, FLOATS - width), (FLOATS, FLOATS)), kinds)
    ]
    return _draw(
        "sector", "A float4 takes half of a sector", spans, kinds, (2 * FLOATS, 6), ("floats of its key", "threads"),
        "Six neighbouring threads. Each reads its own key; a cell is a float. Memory brings sectors of eight.",
        computed("drawn"), height=2.9,
    )  # fmt: skip


def blocks(e: Evidence) -> Plot:
    """The blocks of V7 and of separate kernels on the authors' card, wave by wave: as high as it has places."""
    count, places = LOG_BLOCKS, {name: waves.places(e, name) for name in (V7, SEPARATE)}
    rows = [
        (words, wave, max(min(count - places[name] * wave, places[name]), 0), places[name])
        for words, name in (("V7", V7), ("separate kernels", SEPARATE))
        for wave in range(-(-count // min(places.values())))
    ]
    frame = pd.DataFrame(rows, columns=["kernel", "wave", "blocks", "places"])
    title = "A few blocks too many cost a second wave"
    with canvas(title, 1, 2, height=2.9, sharey=True) as (figure, axes):
        for axis, (words, mine) in zip(axes, frame.groupby("kernel", sort=False)):
            axis.bar(mine["wave"], mine["places"].where(mine["blocks"] > 0), 0.94, **FREE)
            axis.bar(mine["wave"], mine["blocks"], 0.94, color=[LATE if wave else DARK for wave in mine["wave"]])
            for wave, number in zip(mine["wave"], mine["blocks"]):
                at = number / 2 if number > count / 4 else number + 20
                axis.text(wave, at, str(number), ha="center", fontsize=9, bbox=BEHIND)
            axis.set(xlim=(-0.55, frame["wave"].max() + 0.55), xticks=range(frame["wave"].max() + 1))
            axis.set_xticklabels(["first", "second", "third"][: frame["wave"].max() + 1])
            axis.set_title(words, loc="left", fontsize=9)
            axis.grid(visible=False)
        axes[0].set_ylabel("blocks on their SMs")
        axes[0].set_xlabel("wave, one after the other", loc="left")
        key(figure, {"starts at once": {"color": DARK}, "has to wait": {"color": LATE}, "free place": FREE})
    return Plot(
        "blocks", figure,
        f"The {count} blocks of attention at their shapes, head dim {MAIN.hdim}. The {AUTHORS_SMS} SMs of their card "
        f"have places for {places[V7]} blocks of V7 and {places[SEPARATE]} of the separate kernel, by their registers.",
        "Bars of blocks by wave. All of V7 run in one wave; a few of the separate kernel's are left for a second.",
        frame, computed("from the compiler's report"),
    )  # fmt: skip


def banks() -> Plot:
    """Banks of the words that threads read down a column of a tile, in plain and in padded rows."""
    kinds = {"read by the thread of this row": DARK, "another word": LIGHT}
    spans = []
    for panel, padding in ((f"as they are: {ROWS} passes", 0), ("padded: one pass", PADDING)):
        for row in range(ROWS):
            start = row * padding % BANKS
            after = (start + 2, BANKS - start - 2)
            spans += [Span(panel, row, *cells, "another word") for cells in ((0, start), after)]
            spans.append(Span(panel, row, start, 2, "read by the thread of this row"))
    return _draw(
        "banks", "Padding moves each row to other banks", spans, kinds, (BANKS, ROWS), (f"{BANKS} banks", "rows"),
        "Half of Phase 6's tile of queries; a cell is a word of two values. Each thread reads two words of its own "
        "row, and words that lie in one bank are read one after the other.",
        computed("drawn from the layout of Phase 6"), columns=1, height=4.3,
    )  # fmt: skip


def warps() -> Plot:
    """The value in each warp of a block after a reduction that leaves its result in the first warp, for 64 keys."""
    rows = [(warp, warp < 2, "block's" if not warp else "own" if warp < 2 else "−∞") for warp in range(8)]
    frame = pd.DataFrame(rows, columns=["warp", "has_keys", "maximum"])
    frame["writes"] = ["close", "double", *["NaN"] * 6]
    with canvas("Six of eight warps write NaN", height=1.9) as (figure, (axis,)):
        for warp, keys, *words in frame.itertuples(index=False):
            for row, text in enumerate(("32" if keys else "0", *words)):
                colour = LIGHT if keys else LATE if row == 2 else NONE
                axis.barh(row, 0.94, 0.9, left=warp + 0.03, color=colour, lw=0)
                axis.text(warp + 0.5, row, text, ha="center", va="center", fontsize=7.5)
        axis.set(xlim=(0, 8), ylim=(2.5, -0.5), xticks=[warp + 0.5 for warp in range(8)], yticks=range(3))
        axis.set_xticklabels(map(str, range(1, 9)))
        axis.set_yticklabels(["its keys", "its maximum", "it writes"])
        axis.set_xlabel("warps of a block", loc="left", fontsize=8.5)
        axis.grid(visible=False)
    return Plot(
        "warps", figure,
        "A block of the recommended kernel, whose head has 64 keys. Only the first warp has the block's maximum and "
        "sum; close: its outputs are nearly right.",
        "Eight warps in a row. The first writes nearly right values, the second doubled ones. Six have no keys, keep "
        "minus infinity and write NaN.",
        frame, computed("drawn from the kernel"),
    )  # fmt: skip


def _draw(
    id: str, title: str, spans: Sequence[Span], kinds: Mapping[str, Any], size: tuple[int, int], axes: tuple[str, str],
    caption: str, source: Source, columns: int = 2, height: float = 3.0,
) -> Plot:  # fmt: skip
    """Panels of cells, `size` columns by rows, the first row on top; `axes`: what a column is, what a row is."""
    frame = pd.DataFrame(span for span in spans if span.length)
    panels = list(dict.fromkeys(frame["panel"]))
    across, down = axes
    with canvas(title, len(panels) // columns, columns, height=height, sharey=True) as (figure, parts):
        for axis, panel in zip(parts, panels):
            mine = frame[frame["panel"] == panel]
            colours = [kinds[kind] for kind in mine["kind"]]
            axis.barh(mine["row"], mine["length"], 0.86, left=mine["start"], color=colours, lw=0)
            axis.vlines(range(1, size[0]), -0.5, size[1] - 0.5, color="white", lw=1)
            axis.set(xlim=(0, size[0]), ylim=(size[1] - 0.5, -0.5), xticks=[], yticks=[])
            axis.set_title(panel, loc="left", fontsize=9)
        parts[-columns].set_xlabel(across, loc="left", fontsize=8.5)
        parts[-columns].set_ylabel(down, fontsize=8.5)
        key(figure, {kind: {"color": colour} for kind, colour in kinds.items()})
    alt = f"Cells by {across} and {down}, in panels: {'; '.join(panels)}. Their colours: {', '.join(kinds)}."
    return Plot(id, figure, caption, alt, frame, source)
