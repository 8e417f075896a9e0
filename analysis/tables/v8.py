"""The ladder of V8: what its steps share."""

import math

from kernels import VERSIONS, Unsupported

from ..evidence import Evidence, computed
from ..findings.v8 import RUNGS
from ..models.rivals import HYBRID, SEPARATE
from ..studies import MAIN
from .table import Table, link

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
