"""Style of the figures: palette, canvas, ticks, legends."""

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..evidence import Evidence, Source
from ..record.files import DATA, REFERENCE, ROOT

PALETTE = sns.color_palette("colorblind")
# One meaning a colour over the whole book; the glossary has the legend.
FUSED, THEIRS, EMBEDS, WAITS = PALETTE[0], PALETTE[9], PALETTE[1], PALETTE[3]
SPARE, LIBRARY = "0.85", "0.45"  # the host, or what is not the point; the kernels of others
PUBLISHED: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.35", "hatch": "////"}
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "fused-positional-embeddings",
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
WIDTH = 5.4  # inches: as wide as the text, and still read on a phone
TITLE_SIZE, SOURCE_SIZE = 12, 8.5  # points
TITLE_COLUMNS, SOURCE_COLUMNS = 46, 74  # characters of a line
REFERENCE_CARD = Evidence.load(DATA / "measured" / REFERENCE).card  # titles are true of it


@dataclass(frozen=True)
class Plot:
    """A figure with what a reader needs to find, read and cite it. Where its numbers are from is written inside it.

    The title is the edition's: on a card other than the reference's the figure says so.
    """

    id: str
    figure: Figure
    caption: str
    alt: str
    data: pd.DataFrame
    source: Source
    name: str = ""  # of a figure without a title inside
    true_of: str = REFERENCE_CARD  # the card of which the title is true
    script: str = ""  # that draws it, a path in the repository: where the plot is made, unless it is given

    def __post_init__(self) -> None:
        maker = Path(sys._getframe(2).f_code.co_filename)  # what calls Plot(...), two frames above
        if not self.script and maker.is_relative_to(ROOT):
            object.__setattr__(self, "script", str(maker.relative_to(ROOT)))
        if not self.title:
            raise ValueError(f"figure {self.id} has neither a title nor a name")
        if self.figure.get_suptitle():
            measured = {part.card for part in self.source.parts if part.card}
            of = f"; the title is of the {self.true_of}" if measured and self.true_of not in measured else ""
            brief = "" if self.source.brief.startswith("Drawn") else self.source.brief  # a reader sees that
            with styled():
                _head(self.figure, self.title, brief + of)

    @property
    def title(self) -> str:
        """The message, in one line, or the name of a figure that shows none."""
        return " ".join(self.figure.get_suptitle().split()) or self.name

    @property
    def title_points(self) -> float:
        """The height of the title at the top of the image."""
        return _below_title(self.figure.get_suptitle()) * 72 if self.figure.get_suptitle() else 0.0


@contextmanager
def styled(base: str = "") -> Iterator[None]:
    """The book's style on matplotlib's defaults, or on a style of seaborn: nothing of the user's matplotlibrc."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({**(sns.axes_style(base) if base else {}), **STYLE})
        yield


@contextmanager
def canvas(title: str, rows: int = 1, columns: int = 1, *, height: float, **axes: Any) -> Iterator[tuple[Figure, list]]:
    """A figure in the book's style whose title, at the left, is its message, in twelve words or fewer."""
    with styled("whitegrid"):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, **axes)
        _head(figure, title, "")
        yield figure, [axis for row in grid for axis in row]
        sns.despine(fig=figure)


def _below_title(title: str) -> float:
    """Inches from the top of an image to the end of its title."""
    return 0.06 + (title.count("\n") + 1) * TITLE_SIZE * 1.3 / 72


def _head(figure: Figure, title: str, source: str) -> None:
    """Write the title and, small below it, the source, and leave them the room that they take."""
    if not title:
        return
    height, titles = figure.get_figheight(), textwrap.wrap(title, TITLE_COLUMNS)
    sources = textwrap.wrap(source[:1].upper() + source[1:], SOURCE_COLUMNS)
    below = _below_title("\n".join(titles))
    bottom = below + len(sources) * SOURCE_SIZE * 1.3 / 72 + 0.08
    place: dict[str, Any] = {"x": 0.01, "ha": "left", "va": "top"}
    head = figure.suptitle("\n".join(titles), y=1 - 0.04 / height, fontsize=TITLE_SIZE, fontweight="bold", **place)
    head.set_in_layout(False)
    if sources:
        small = figure.text(s="\n".join(sources), y=1 - below / height, fontsize=SOURCE_SIZE, color="0.35", **place)
        small.set_in_layout(False)
    layout = figure.get_layout_engine()
    if isinstance(layout, ConstrainedLayoutEngine):
        layout.set(rect=(0, 0, 1, 1 - bottom / height))


def log_ticks(axes: Axes, which: Literal["x", "y"], low: float, high: float, unit: str = "") -> None:
    """Make an axis logarithmic, with plain numbers at 1, 2 and 5."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if high / low < 1e3 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
    axis.set_minor_locator(NullLocator())


def time_bars(axis: Axes, labels: Sequence[str], us: Sequence[float], colors: Sequence[str]) -> None:
    """Lying bars of microseconds, the first on top, each with its label and its time."""
    axis.barh(range(len(us)), us, 0.7, color=colors)
    for place, each in enumerate(us):
        axis.text(each, place, f" {each:.1f} µs", va="center", fontsize=8.5, fontweight="bold")
    axis.set_xlim(0, 1.2 * max(us))
    axis.set_yticks(range(len(us)), labels, fontsize=8.5)
    axis.set_ylim(len(us) - 0.4, -0.6)
    axis.grid(False, axis="y")
    axis.set_xlabel("µs of one call", loc="left")


def legend(figure: Figure, axes: Sequence[Axes], size: float) -> None:
    """Below the figure, each label of some axes once."""
    found = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=2, frameon=False, handletextpad=0.4,
        columnspacing=1, fontsize=size,
    )  # fmt: skip


def key(figure: Figure, looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Below the figure, what its areas mean: how each looks, by its label."""
    figure.legend(
        handles=[Patch(label=label, **look) for label, look in looks.items()], loc="outside lower left", ncols=3,
        frameon=False, fontsize=8, handlelength=1.2, handletextpad=0.5, columnspacing=1,
    )  # fmt: skip
