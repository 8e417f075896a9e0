"""Which threads of a block work in the score phase: a drawing, a square for each thread."""

from __future__ import annotations

import pandas as pd
from matplotlib.patches import Rectangle

from kernels import VERSIONS, Problem

from ..evidence.origin import computed
from .style import PALETTE, Plot, canvas

WARP = 32
SHAPES = {  # what is drawn, by the versions that work alike; in V4 no thread owns a key
    "V1c, V2, V3, V7": ("rope_v1c", 512),
    "V6": ("rope_v6a", 512),
    "V5, head dim 512": ("rope_v5", 512),
    "V5, head dim 2048": ("rope_v5", 2048),
}


def score_threads() -> Plot:
    """The threads of a block that own a key in the score phase of fused RoPE, as their launches say."""
    rows = []
    for name, (version, hdim) in SHAPES.items():
        problem = Problem("rope", heads=4, hdim=hdim, rotary_dim=hdim)
        launch = VERSIONS[version](problem).launches[-1]
        keys = min(problem.seq_k, launch.shared.sizes["scores"])
        rows.append((name, version, hdim, int(launch.block[0]), keys, problem.seq_k // keys))
    frame = pd.DataFrame(rows, columns=["name", "version", "hdim", "threads", "keys", "tiles"])
    title = "In the score phase most threads of a block own no key"
    with canvas(title, rows=2, columns=2, height=3.4) as (figure, axes):
        for axis, row in zip(axes, frame.itertuples()):
            for thread in range(row.threads):
                warp, lane = divmod(thread, WARP)
                colour = PALETTE[0] if thread < row.keys else "0.88"
                axis.add_patch(Rectangle((lane, warp), 0.84, 0.84, facecolor=colour, linewidth=0))
            axis.set(xlim=(0, WARP), ylim=(row.threads // WARP, 0), yticks=[], xticks=[], aspect="equal")
            axis.grid(visible=False)
            axis.spines[:].set_visible(False)
            axis.set_title(f"{row.name}: {row.keys} of {row.threads}", loc="left", fontsize=9.5)
            often = f"in each of {row.tiles} tiles" if row.tiles > 1 else "for all 64 keys at once"
            axis.set_xlabel(often, loc="left", fontsize=8.5)
        figure.supylabel("a row is a warp", fontsize=8.5)
    return Plot(
        "score-threads",
        figure,
        "Blue threads own a key: each multiplies it with the query over the whole head dim, one dim after the other. "
        "Grey threads wait at the barrier behind. 64 queries and 64 keys; V3 multiplies each key with four queries. V4 "
        "is not drawn: there the whole block takes one key at a time, each thread some of its dims.",
        "Drawing of the 256 threads of a block, a row for each warp; those that own a key are coloured.",
        frame,
        computed("drawn; its numbers from the launches"),
    )
