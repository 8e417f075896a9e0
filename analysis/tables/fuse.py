"""Should I fuse? Wins, ties and losses by dtype and shape, beside what was compared."""

from collections.abc import Callable, Mapping
from functools import partial

from kernels.flash.decode.choose import MOST_QUERIES

from ..evidence import Evidence, Undecided
from ..evidence.origin import measured
from ..findings import fuse
from ..findings.decode import RAW, STUDY
from ..findings.fuse import FEW_QUERIES, HALF, WARM, Outcomes, beside, decodes, float32_over_others, over_others
from ..models.rivals import MEASURED_IN
from .table import Missing, Table

COUNTS = ("wins", "ties", "losses")


def fusing(e: Evidence) -> Table | Missing:
    """Full fusion beside the same attention with K rotated in front of it."""
    few, header = f"{MOST_QUERIES + 1} to {FEW_QUERIES}", ("queries, float32", "fuse?", *COUNTS)
    asked = ((few, "yes", fuse.own_keys), (f"{few}, heads share K", "yes", fuse.shared_keys),
             (f"more than {FEW_QUERIES}", "mostly no", fuse.many_queries))  # fmt: skip
    rows = _counted({(what, so): partial(fuse.outcomes, e, of) for what, so, of in asked})
    caption = (
        f"{e.card}: how many shapes full fusion wins, ties or loses beside the faster of a hybrid and separate kernels "
        "with the same attention. A tie is within 3 %, or its interval reaches 1. Queries are counted per head; calls "
        "with fewer count as decode."
    )
    if not rows:
        return Missing.study("map")
    return Table(header, rows, COUNTS, caption, source=measured(e, "map", "heldout"), title="Does fusing pay?")


def calls(e: Evidence) -> Table | Missing:
    """`rope_attention`, fused or not, beside the fastest other wherever one was timed."""
    rows = _counted({
        ("decode, half precision",): lambda: beside(over_others(e, STUDY, RAW, WARM, *HALF)),
        ("decode, float32",): lambda: beside(float32_over_others(e, decodes)),
        ("prompts, half precision",): lambda: beside(over_others(e, "half_prompts", "rope_prompt", WARM, *HALF)),
        ("prompts, float32",): lambda: beside(float32_over_others(e, lambda problem: not decodes(problem))),
    })
    caption = (
        f"{e.card}: at how many shapes rope_attention is faster, level or slower than the fastest of PyTorch, "
        "compiled or not, kernels in Triton and, in half precision, FlashInfer. Counted are all shapes at which "
        f"at least one of these was timed. Decode: raw keys, up to {MOST_QUERIES} queries."
    )
    if not rows:
        return Missing.study("peers")
    source = measured(e, *MEASURED_IN, "half_prompts")
    return Table(("your call", *COUNTS), rows, COUNTS, caption, source=source, title="Does our call win?")


def _counted(asked: Mapping[tuple[str, ...], Callable[[], Outcomes]]) -> list[tuple[str, ...]]:
    """A row for each that was measured."""
    rows = []
    for cells, count in asked.items():
        try:
            rows.append((*cells, *map(str, count())))
        except Undecided:
            continue
    return rows
