"""Tables of the chapter about V8: what the steps of its ladder share, and its lead by heads."""

import math

from kernels import VERSIONS, Unsupported

from ..evidence import Evidence, computed, measured
from ..findings.v8 import HEADS, PARTLY, ROTATED, RUNGS, filled, over
from ..models.rivals import HYBRID, SEPARATE, V8
from ..studies import MAIN
from .table import Table, link, ratio

TURNED_ONCE = ("rope_separate", HYBRID, SEPARATE)  # kernels in front rotate each key once


def v8_steps(e: Evidence) -> Table:
    """A row a step: queries of a tile, blocks, and how often a key is rotated."""
    rows = []
    for name, words in RUNGS.items():
        try:
            attends = VERSIONS[name](MAIN, e.target).launches[-1]
        except Unsupported:
            continue
        queries = getattr(attends.shape, "queries", 1)
        often = 1 if name in TURNED_ONCE else math.ceil(MAIN.seq_q / queries)
        rows.append((link(name, words), str(queries), str(math.prod(attends.grid)), str(often)))
    header = ("step", "queries a block or cluster", "blocks", "rotations of a key")
    caption = (
        f"Their shape: {MAIN.heads} heads of {MAIN.seq_q} queries. As in the write-up's V7, {MAIN.rotary_dim} of the "
        f"{MAIN.hdim:,} dims are rotated."
    )
    source = computed("by the plans of the kernels")
    return Table(header, rows, header[1:], caption, id="v8-steps", source=source, title="What each step shares")


def v8_heads(e: Evidence) -> Table:
    """A row a head dim and number of rotated dims: V8's speedups with the documents' heads, and with the card full."""
    rows = []
    for problem in (*PARTLY, ROTATED):
        asked = problem, filled(problem)
        gains = [over(e, other, each).get(each) for other in (HYBRID, SEPARATE) for each in asked]
        rows.append((f"{problem.hdim:,}", f"{problem.rotary_dim:,}", *(ratio(gain) if gain else "–" for gain in gains)))
    loads = (f"{MAIN.heads} heads", f"{HEADS} heads")
    compared = (f"over {words}, {load}" for words in ("the hybrid", "separate") for load in loads)
    header = ("head dim", "dims rotated", *compared)
    caption = (
        f"Speedup of V8, {MAIN.seq_q} tokens a head, float32, on the GPU alone, on the whole card. All have V8's "
        "attention. Small: 95 % intervals."
    )
    source, title = measured(e, "beyond", of=(V8, HYBRID, SEPARATE)), "V8 with more heads"
    return Table(header, rows, header, caption, id="v8-heads", source=source, title=title)
