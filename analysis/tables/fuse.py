"""Should I fuse? Wins, ties and losses by dtype and shape, beside what was compared."""

from ..evidence import Evidence, Undecided
from ..evidence.origin import measured
from ..findings import fuse
from ..findings.decode import COLD, RAW, STUDY
from ..models.advice import FEW_QUERIES
from .table import Missing, Table, lines, small

COUNTS = ("wins", "ties", "losses")
SAME, OTHERS = "against: not fused", "against: PyTorch, FlashInfer"


def by_shape(e: Evidence) -> Table | Missing:
    """A row for each kind of call that was measured: of the first fusing counts, of the others `rope_attention`."""

    def others(*calls: str) -> fuse.Outcomes:
        return fuse.beside(fuse.over_others(e, *calls))

    few = f"float32, up to {FEW_QUERIES} queries"
    asked = (
        (few, SAME, "yes", lambda: fuse.outcomes(e, fuse.own_keys)),
        (f"{few}, shared K", SAME, "yes", lambda: fuse.outcomes(e, fuse.shared_keys)),
        ("float32, more queries", SAME, "mostly no", lambda: fuse.outcomes(e, fuse.many_queries)),
        ("decode, half precision", OTHERS, "yes", lambda: others(STUDY, RAW, COLD, *fuse.HALF)),
        ("decode, float32", "against: PyTorch", "yes", lambda: others(STUDY, RAW, COLD, "float32")),
        ("prompts, half precision", OTHERS, "Q only",
         lambda: others("half_prompts", "rope_prompt", fuse.WARM, *fuse.HALF)),
        ("prompts, float32", "against: PyTorch, V8", "no",
         lambda: others("prompts", "rope_prompt32", fuse.WARM, "float32")),
    )  # fmt: skip
    rows = []
    for what, against, so, ask in asked:
        try:
            rows.append((lines(what, small(against)), so, *map(str, ask())))
        except Undecided:
            continue
    caption = (
        f"How many of the shapes that we timed are won, tied (within 3 %) or lost, {e.card}. Upper three: full fusion "
        "beside the faster of a hybrid and separate kernels, all with V8's attention, from 9 queries a head on. Lower "
        "four: rope_attention, which fuses as the second column says. Decode: up to 8 queries, raw keys."
    )
    header = ("your call", "fuse?", *COUNTS)
    source = measured(e, "map", "heldout", STUDY, "half_prompts", "prompts")
    return Table(header, rows, COUNTS, caption, source=source) if rows else Missing.study("map")
