"""The tables of the chapter that sets the problem up: the documents' shapes, and what a wait of the host costs."""

from ..evidence import Evidence
from ..evidence.origin import computed
from ..measure.studies import AUTHORS_SMS, LOG_SHAPES, partial_rope
from ..record.text import number
from .table import Table

SHAPES = [partial_rope(*shape, hdim) for hdim, shape in {128: LOG_SHAPES[512], **LOG_SHAPES}.items()]


def shapes(e: Evidence) -> Table:
    sms = int(e.gpu["sms"])
    rows = []
    for problem in SHAPES:
        blocks = problem.heads * problem.seq_q
        per_sm = (number(blocks / each, digits=1) for each in (AUTHORS_SMS, sms))
        rows.append((str(problem.hdim), f"{problem.heads} × {problem.seq_q}", str(blocks), *per_sm))
    here = f"per SM, {e.card.removeprefix('NVIDIA ')}"
    header = ("head dim", "heads × tokens", "blocks", "per SM, theirs", here)
    caption = (
        f"Blocks: one per query and head, as in most kernels of the log. The last two columns divide them by the "
        f"{AUTHORS_SMS} SMs of their card and the {sms} of this one."
    )
    source = computed("from the shapes and the SMs of each card")
    return Table(header, rows, header[1:], caption, source=source, title="The documents' shapes, and their blocks")
