"""What the figures share: palette, canvas, ticks, legends, and how a figure is saved and cited."""

from __future__ import annotations

import base64
import io
import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

from ..records import published
from ..records.files import BUILD, ROOT, is_committed
from ..records.measured import Measured

FOLDER = ROOT / "book" / "figures"
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
FAMILIES = {"rope": "RoPE", "fp16": "half-precision"}  # where the name in a figure is not just the word
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
    """A figure with what a reader needs to find, read and cite it; `source` says where its numbers are from."""

    id: str
    figure: Figure
    caption: str
    alt: str
    data: pd.DataFrame
    source: str


# ---------------------------------------------------------------- where numbers are from


COUNTED = "counted in the emulator"


def measured_on(gpu: str, runs: Iterable[Mapping[str, Any]]) -> str:
    """`"measured on NVIDIA H200, run 20261122T130720Z, commit ec1a5c85d614"`; without a run where that has no name."""
    where = dict.fromkeys(", ".join(f"{key} {run[key]}" for key in ("run", "commit") if key in run) for run in runs)
    return f"measured on {gpu}, {' and '.join(where)}"


def measured_in(*evidence: Measured) -> str:
    """`measured_on` of the runs of some evidence of one GPU."""
    return measured_on(evidence[0].card, [each.run for each in evidence])


def counters_of(evidence: Measured) -> str:
    return f"hardware counters of the {evidence.card}"


def published_on(family: str) -> str:
    return f"published for the {published.card(family)}"


# ---------------------------------------------------------------- drawing


def short(version: str) -> str:
    """The name within its family: `"rope_v7"` to `"V7"`."""
    words = version.removeprefix(f"{VERSIONS[version].family}_").replace("_", " ")
    return words[0].upper() + words[1:]


def looks(*rows: tuple[str, int, str, str]) -> dict[str, dict[str, Any]]:
    """How series are drawn, by their names: colour of the palette, marker, label."""
    return {name: {"color": PALETTE[colour], "marker": marker, "label": label} for name, colour, marker, label in rows}


@contextmanager
def canvas(
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


def log_ticks(axes: Axes, which: Literal["x", "y"], low: float, high: float, unit: str = "") -> None:
    """Make an axis logarithmic, with plain numbers at 1, 2 and 5."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if high / low < 1e3 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def mark_wrong(axis: Axes, x: Sequence[float], y: pd.Series, status: pd.Series) -> None:
    """Cross out the points whose result is wrong."""
    wrong = [(left, up) for left, up, found in zip(x, y, status) if found == "wrong"]
    if wrong:
        axis.plot(*zip(*wrong), **WRONG)


def shape_ticks(axis: Axes, problems: Sequence[Problem]) -> None:
    labels = [f"{problem.hdim}\n{problem.heads}×{problem.seq_q}" for problem in problems]
    axis.set_xticks(range(len(problems)), labels)
    axis.set_xlim(-0.5, len(problems) - 0.5)
    axis.set_xlabel("head dim\nheads × sequence")


def place_of(problems: Sequence[Problem], hdim: int) -> int:
    return [problem.hdim for problem in problems].index(hdim)


def legend(figure: Figure, axes: Sequence[Axes], columns: int = 2) -> None:
    found = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels())}
    found |= {label: found.pop(label) for label in (WRONG["label"],) if label in found}
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=columns, frameon=False, handletextpad=0.4
    )


# ---------------------------------------------------------------- saving


def folder(slug: str) -> Path:
    """Where figures go: into the repository for the committed record, else into that GPU's build."""
    return FOLDER if is_committed(slug) else BUILD / slug / "figures"


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


def to_html(plot: Plot, where: Path) -> str:
    """The saved figure with caption, alt text and how to cite it: its files, and where its numbers are from."""
    image = base64.b64encode((where / f"{plot.id}.svg").read_bytes()).decode()
    link = f"<a href='{PUBLISHED_AT}/{plot.id}"
    links = ", ".join(f"{link}.{suffix}'>{suffix.upper()}</a>" for suffix in (*FORMATS, "csv"))
    entry = (
        f"@misc{{fused-positional-embeddings-{plot.id},\n"
        "  title = {Fusing Positional Embeddings into Attention Kernels: an executable edition},\n"
        "  author = {{the fused-positional-embeddings authors}},\n"
        f"  note = {{Figure {plot.id}, {plot.source}}},\n"
        "}"
    )
    return (
        f"<figure class='evidence' id='figure-{plot.id}'>"
        f"<img src='data:image/svg+xml;base64,{image}' alt='{escape(plot.alt, quote=True)}'>"
        f"<figcaption>{escape(plot.caption)}</figcaption>"
        f"<details><summary>Cite this figure</summary><p>{links}. Source: {escape(plot.source)}.</p>"
        f"<pre>{escape(entry)}</pre></details></figure>"
    )
