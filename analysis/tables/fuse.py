"""Should I fuse? Wins, ties and losses of full fusion by dtype and shape, beside what it was compared with."""

from ..evidence import Evidence, Undecided
from ..evidence.origin import measured
from ..findings import fuse
from ..findings.decode import UNROTATED, rival
from ..measure.studies import FLASHINFER
from ..models.advice import FEW_QUERIES, few_queries, shares_keys
from .table import Missing, Table, lines, small

COUNTS = ("wins", "ties", "losses")
SAME, OTHERS, PLAIN = "not fused", "PyTorch, FlashInfer", "rotated keys"


def by_shape(e: Evidence) -> Table | Missing:
    """A row for each kind of call that was measured."""
    half = rival(e, "float16", UNROTATED, False) if e.study("split_keys") else None
    cost = f", at up to {half.slowest:slower}" if half else ""
    asked = (
        (f"float32, up to {FEW_QUERIES} queries", SAME, "fuse", lambda: fuse.outcomes(e, few_queries)),
        ("float32, more queries", SAME, "time both", lambda: fuse.outcomes(e, fuse.many_queries)),
        ("float32, heads that share K", SAME, "rotate K first", lambda: fuse.outcomes(e, shares_keys)),
        ("half precision, prompts", OTHERS, "use our hybrid",
         lambda: fuse.beside(fuse.half_prompts(e, (*fuse.PYTORCH, FLASHINFER[0])).values())),
        ("decode, float32", PLAIN, "fuse: nearly free", lambda: fuse.beside(fuse.rotating_costs(e, False))),
        ("decode, half precision", PLAIN, f"fuse{cost}", lambda: fuse.beside(fuse.rotating_costs(e, True))),
    )  # fmt: skip
    rows = []
    for what, against, advice, ask in asked:
        try:
            rows.append((lines(what, small(f"against: {against}")), advice, *map(str, ask())))
        except Undecided:
            continue
    caption = (
        f"On how many of the timed shapes fusing wins, ties (within 3 %) or loses, {e.card}. Not fused: the faster of "
        "a hybrid and separate kernels with the same attention; queries are those of a head. Decode: up to 8 queries "
        "and raw keys; a tie with rotated keys means that RoPE is free. The first row has single queries, too: there "
        "the rivals rotate the whole cache in each call."
    )
    header = ("your call", "so", *COUNTS)
    source = measured(e, "map", "split_keys", "half_prompts")
    return Table(header, rows, COUNTS, caption, source=source) if rows else Missing.study("map")
