"""Should I fuse? Wins, ties and losses of full fusion by dtype and shape."""

from __future__ import annotations

from collections.abc import Callable

from ..evidence import Evidence, Undecided
from ..evidence.origin import measured
from ..findings import committed
from ..findings.fuse import Outcomes, beside, many_but_prefill, outcomes, prefill, rotating_costs
from ..models.advice import MANY_HEADS, few_heads, short
from .table import Missing, Table

HOPPER = "nvidia-h100-80gb-hbm3"  # on which decoding was measured
FLOAT32, HALF = "float32", "half precision"
CORE, DECODE = "a hybrid and separate kernels, same core", "the same kernel without RoPE, K rotated before"
MANY = f"{MANY_HEADS} or more heads of K"


def fuse(e: Evidence) -> Table | Missing:
    """On how many of the shapes timed fusing wins, ties and loses, and what follows."""
    here = e if e.study("split_keys") else committed(HOPPER)
    asked: tuple[tuple[str, str, str, Callable[[], Outcomes], str], ...] = (
        (FLOAT32, "up to 64 keys", CORE, lambda: outcomes(e, short), "fuse"),
        (FLOAT32, f"more keys, {MANY}, short prompts", CORE, lambda: outcomes(e, many_but_prefill), "fuse"),
        (FLOAT32, f"more keys, {MANY}, long prompts", CORE, lambda: outcomes(e, prefill), "as you like"),
        (FLOAT32, "more keys, fewer heads of K", CORE, lambda: outcomes(e, few_heads), "rotate K before"),
        (FLOAT32, "decode, up to 8 queries", DECODE, lambda: beside(rotating_costs(here, False)), "fuse: it is free"),
        (HALF, "decode, up to 8 queries", DECODE, lambda: beside(rotating_costs(here, True)), "fuse: it is cheap"),
    )
    rows = []
    for dtype, shape, rival, ask, advice in asked:
        try:
            found = ask()
        except Undecided:
            continue
        rows.append((dtype, shape, rival, *map(str, found), advice))
    if not rows:
        return Missing.study("map")
    header = ("dtype", "shape", "fused, against", "wins", "ties", "losses", "so")
    caption = (
        "Shapes timed, by outcome; within 3 % is a tie. Heads of K are counted through the batch. Short prompts: up to "
        f"64 queries, or 256 queries and keys. Prompts on the {e.card}, decode on the {here.card}."
    )
    return Table(header, rows, header[3:6], caption).of(measured(e, "map") + measured(here, "split_keys"))
