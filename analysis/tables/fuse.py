"""Should I fuse? Wins, ties and losses of full fusion by dtype and shape."""

from __future__ import annotations

from collections.abc import Callable

from ..evidence import Evidence, Undecided
from ..evidence.origin import measured
from ..findings import with_study
from ..findings.decode import MANY as MANY_KEYS
from ..findings.decode import UNROTATED, rival
from ..findings.fuse import Outcomes, beside, half_prompts, many_but_prefill, outcomes, prefill, rotating_costs
from ..models.advice import MANY_HEADS, few_heads, short
from .table import Missing, Table

FLOAT32, HALF = "float32", "half precision"
PYTORCH = "RoPE as one kernel, then cuDNN or flash, the faster"
CORE, DECODE = "a hybrid and separate kernels, same attention core", "the same kernel without RoPE, K rotated before"
MANY = f"{MANY_HEADS} or more heads of K"


def cheap(e: Evidence) -> str:
    """What rotating costs in half precision, where the keys are many."""
    found = rival(e, "float16", UNROTATED, False, (MANY_KEYS,)) if e.study("split_keys") else None
    return f"fuse: it costs {found:slower} at {MANY_KEYS:,} keys" if found else "fuse"


def fuse(e: Evidence) -> Table | Missing:
    """On how many of the shapes timed fusing wins, ties and loses, and what follows."""
    here, prompts = (with_study(e, name) for name in ("split_keys", "half_prompts"))
    asked: tuple[tuple[str, str, str, Callable[[], Outcomes], str], ...] = (
        (FLOAT32, "up to 64 keys", CORE, lambda: outcomes(e, short), "fuse"),
        (FLOAT32, f"more keys, {MANY}, short prompts", CORE, lambda: outcomes(e, many_but_prefill), "fuse"),
        (FLOAT32, f"more keys, {MANY}, long prompts", CORE, lambda: outcomes(e, prefill), "as you like"),
        (FLOAT32, "more keys, fewer heads of K", CORE, lambda: outcomes(e, few_heads), "rotate K in its own kernel"),
        (FLOAT32, "decode, up to 8 queries", DECODE, lambda: beside(rotating_costs(here, False)), "fuse: all but free"),
        (HALF, "prompts", PYTORCH, lambda: beside(half_prompts(prompts)), "fuse"),
        (HALF, "decode, up to 8 queries", DECODE, lambda: beside(rotating_costs(here, True)), cheap(here)),
    )
    rows = []
    for dtype, shape, beaten, ask, advice in asked:
        try:
            found = ask()
        except Undecided:
            continue
        rows.append((dtype, shape, advice, *map(str, found), beaten))
    if not rows:
        return Missing.study("map")
    header = ("dtype", "shape", "so", "wins", "ties", "losses", "against")
    caption = (
        "Shapes timed, by outcome; within 3 % is a tie. Heads of K: times the batch. Short prompts: up to "
        f"64 queries, or up to 256 queries and 256 keys. Prompts in float32 on the {e.card}, decode and half "
        f"precision on the {here.card}."
    )
    return Table(header, rows, header[3:6], caption).of(
        measured(e, "map") + measured(here, "split_keys") + measured(prompts, "half_prompts")
    )
