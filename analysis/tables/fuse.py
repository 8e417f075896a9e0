"""Should I fuse? Wins, ties and losses of full fusion by dtype and shape, beside what it was compared with."""

from collections.abc import Callable

from ..evidence import Evidence, Undecided
from ..evidence.origin import measured
from ..findings import with_study
from ..findings.decode import UNROTATED, rival
from ..findings.fuse import (
    PYTORCH,
    Outcomes,
    beside,
    half_prompts,
    many_but_prefill,
    outcomes,
    prefill,
    rotating_costs,
)
from ..measure.studies import FLASHINFER
from ..models.advice import MANY_HEADS, few_heads, short
from .table import Missing, Table, lines, small

COUNTS = ("wins", "ties", "losses")
MANY = f"{MANY_HEADS} or more heads of K"
RIVALS = (*PYTORCH, FLASHINFER[0])
NEAR = "On how many of the timed shapes ours wins, ties (within 3 %) or loses"


def counted(asked: tuple[tuple[tuple[str, ...], Callable[[], Outcomes]], ...]) -> list[tuple[str, ...]]:
    """A row for each question that the measurements answer."""
    rows = []
    for words, ask in asked:
        try:
            rows.append((*words, *map(str, ask())))
        except Undecided:
            continue
    return rows


def alone(e: Evidence) -> Table | Missing:
    """Prompts in float32, beside kernels with the same attention."""
    rows = counted(
        (
            (("up to 64 keys", "fuse"), lambda: outcomes(e, short)),
            ((f"more keys, {MANY}, short prompts", "fuse"), lambda: outcomes(e, many_but_prefill)),
            ((f"more keys, {MANY}, long prompts", "either way"), lambda: outcomes(e, prefill)),
            (("more keys, fewer heads of K", "either way: time both"), lambda: outcomes(e, few_heads)),
        )
    )
    caption = (
        f"{NEAR}, {e.card}. Compared with: a hybrid and separate kernels with the same attention. Heads of K are "
        "counted over the whole batch. Short prompts: up to 64 queries, or up to 256 queries and 256 keys."
    )
    header = ("float32 prompts", "advice", *COUNTS)
    return Table(header, rows, COUNTS, caption).of(measured(e, "map")) if rows else Missing.study("map")


def others(e: Evidence) -> Table | Missing:
    """Prompts in half precision beside PyTorch, and decode beside a kernel that need not rotate."""
    here, prompts = (with_study(e, name) for name in ("split_keys", "half_prompts"))
    half = rival(here, "float16", UNROTATED, False) if here.study("split_keys") else None
    raw, cost = "with raw keys fuse", ": costs up to {:slower}"

    def over(what: str, rival: str = "ours on rotated keys") -> str:
        return lines(what, small(f"over {rival}"))

    rows = counted(
        (
            ((over("prompts, half precision", "PyTorch, FlashInfer"), "our hybrid"),
             lambda: beside(half_prompts(prompts, RIVALS))),
            ((over("decode, float32"), f"{raw}: nearly free"), lambda: beside(rotating_costs(here, False))),
            ((over("decode, half precision"), raw + (cost.format(half.slowest) if half else "")),
             lambda: beside(rotating_costs(here, True))),
        )
    )  # fmt: skip
    caption = (
        f"{NEAR}, {here.card}. Prompts: the fastest of RoPE as one compiled kernel and then cuDNN or FlashAttention, "
        "and FlashInfer, which takes one sequence. Decode: up to 8 queries; the rival does not rotate K, as its keys "
        "are rotated already."
    )
    source = measured(here, "split_keys") + measured(prompts, "half_prompts")
    header = ("all else", "advice", *COUNTS)
    return Table(header, rows, COUNTS, caption).of(source) if rows else Missing.study("half_prompts")
