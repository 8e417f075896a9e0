"""Should I fuse? Wins, ties and losses of full fusion by dtype and shape."""

from __future__ import annotations

from collections.abc import Callable

from ..evidence import Evidence, Undecided
from ..evidence.origin import measured
from ..findings import with_study
from ..findings.decode import UNROTATED, rival
from ..findings.fuse import Outcomes, beside, half_prompts, many_but_prefill, outcomes, prefill, rotating_costs
from ..models.advice import MANY_HEADS, few_heads, short
from .table import Missing, Table

FLOAT32, HALF = "float32", "half precision"
MANY = f"{MANY_HEADS} or more heads of K"


def cheap(e: Evidence) -> str:
    """What rotating costs in half precision at most, by the number of keys."""
    found = rival(e, "float16", UNROTATED, False) if e.study("split_keys") else None
    return f"fuse, for {found.slowest:slower} at most" if found else "fuse"


def fuse(e: Evidence) -> Table | Missing:
    """On how many of the shapes timed fusing wins, ties and loses, and what follows."""
    here, prompts = (with_study(e, name) for name in ("split_keys", "half_prompts"))
    asked: tuple[tuple[str, str, Callable[[], Outcomes], str], ...] = (
        (FLOAT32, "up to 64 keys", lambda: outcomes(e, short), "fuse"),
        (FLOAT32, f"more keys, {MANY}, short prompts", lambda: outcomes(e, many_but_prefill), "fuse"),
        (FLOAT32, f"more keys, {MANY}, long prompts", lambda: outcomes(e, prefill), "either way"),
        (FLOAT32, "more keys, fewer heads of K", lambda: outcomes(e, few_heads), "rotate K in its own kernel"),
        (FLOAT32, "decode, up to 8 queries", lambda: beside(rotating_costs(here, False)), "fuse: nearly free"),
        (HALF, "prompts", lambda: beside(half_prompts(prompts)), "fuse"),
        (HALF, "decode, up to 8 queries", lambda: beside(rotating_costs(here, True)), cheap(here)),
    )
    rows = []
    for dtype, shape, ask, advice in asked:
        try:
            found = ask()
        except Undecided:
            continue
        rows.append((f"{dtype}: {shape}", advice, *map(str, found)))
    if not rows:
        return Missing.study("map")
    header = ("shape", "so", "wins", "ties", "losses")
    caption = (
        "How many of the shapes timed fusing wins, ties (within 3 %) and loses. Prompts in float32: against a hybrid "
        "and separate kernels with the same attention core. In half precision: against RoPE as one kernel, then cuDNN "
        "or FlashAttention, the faster. Decode: against the same kernel without RoPE. Heads of K: times the batch. "
        "Short prompts: up to 64 queries, or up to 256 queries and 256 keys. Prompts in float32 on the "
        f"{e.card}, all else on the {here.card}."
    )
    return Table(header, rows, header[2:], caption).of(
        measured(e, "map") + measured(here, "split_keys") + measured(prompts, "half_prompts")
    )
