"""Should I fuse? Wins, ties and losses of full fusion by dtype and shape, beside what it was compared with."""

from ..evidence import Evidence, Undecided
from ..evidence.origin import measured
from ..findings import fuse
from ..findings.decode import UNROTATED, rival
from ..measure.studies import FLASHINFER
from ..models.advice import MANY_HEADS, few_heads, short
from .table import Missing, Table, lines, small

COUNTS = ("wins", "ties", "losses")
SAME, OTHERS, PLAIN = "not fused", "PyTorch, FlashInfer", "rotated keys"


def by_shape(e: Evidence) -> Table | Missing:
    """A row for each kind of call that was measured."""
    half = rival(e, "float16", UNROTATED, False) if e.study("split_keys") else None
    cost = f", at up to {half.slowest:slower}" if half else ""
    many = f"float32, {MANY_HEADS}+ heads of K"
    asked = (
        ("float32, up to 64 keys", SAME, "fuse", lambda: fuse.outcomes(e, short)),
        (f"{many}, short prompt", SAME, "fuse", lambda: fuse.outcomes(e, fuse.short_prompt)),
        (f"{many}, long prompt", SAME, "either way", lambda: fuse.outcomes(e, fuse.long_prompt)),
        ("float32, fewer heads of K", SAME, "time both", lambda: fuse.outcomes(e, few_heads)),
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
        "a hybrid and separate kernels with the same attention. Heads of K are counted over the batch. Short: up to 64 "
        "queries, or up to 256 queries and 256 keys. Decode: up to 8 queries and raw keys; the rival's keys are "
        "rotated already, so a tie means that RoPE is free."
    )
    header = ("your call", "so", *COUNTS)
    source = measured(e, "map", "split_keys", "half_prompts")
    return Table(header, rows, COUNTS, caption, source=source) if rows else Missing.study("map")
