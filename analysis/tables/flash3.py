"""The op beside FlashAttention 3, problem by problem."""

from ..evidence import measured
from ..findings import committed
from ..findings.flash3 import CARD, FEW, LONG, Both, alone, with_rope
from ..models.rivals import label
from ..record.text import number
from .table import Table, lines, mark, ratio, small

NAMES = {FEW: "few queries or rows, many keys", LONG: "long prompts"}


def _cells(both: Both) -> tuple[str, str]:
    """Both times in microseconds, and their ratio."""
    ours, theirs = (number(each.value, digits=1) for each in both)
    return lines(ours, small(theirs)), lines(ratio(both.over), mark("slower", "wrong") * (both.over.side < 0))


def beside_flash3() -> Table:
    """Times of the op and of FlashAttention 3, with RoPE and without. Raises: NotMeasured."""
    e = committed(CARD)
    rows = [
        (NAMES[study], label(problem), *_cells(with_rope(e, study, problem)), *_cells(alone(e, study, problem)))
        for study in (FEW, LONG)
        for problem in e.study(study).problems("rope")
    ]
    header = ("", "problem", "with RoPE, µs", "speedup", "rotated already, µs", "speedup")
    caption = (
        f"Time of one call on the GPU alone, {e.card}, bfloat16: ours, and below it FlashAttention 3. With RoPE it has "
        "a rotation in front, which PyTorch compiles. Rotated already: attention alone on the same tensors. B batch, H "
        f"heads, S queries and keys, D head dim. In brackets: the 95 % interval {e.covers()}."
    )
    return Table(header, rows, header[2:], caption, source=measured(e, FEW, LONG), title="Beside FlashAttention 3")
