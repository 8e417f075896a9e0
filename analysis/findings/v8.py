"""Can RoPE be fused? V8."""

import math
from collections.abc import Iterable

from kernels import VERSIONS, Problem

from ..evidence import Estimates, Evidence, every
from ..measure.studies import FUSIONS, MAIN
from ..models.rivals import BEYOND, V8, floor, rivals
from ..record.text import number
from . import Says, checks, faster, finding, not_slower, numbers, of_values, slower
from .common import times

FULL, HYBRID, SEPARATE = FUSIONS
LOG_SEPARATE, PLAIN = "rope_separate", Problem("attention", 1, 4, seq_q=64, hdim=MAIN.hdim)
LONELY = Problem("rope", seq_q=1, seq_k=4096, hdim=128, rotary_dim=128)


def over(e: Evidence, problems: Iterable[Problem] = BEYOND, names: Iterable[str] = ()) -> Estimates:
    """How many times as fast as the fastest right peer V8 is, or as the fastest of `names`, where both were timed."""
    found = {problem: each[0].over for problem in problems if (each := rivals(e, problem, names))}
    return Estimates(found, "×")


@finding(
    "v8-tiles",
    """Here {cluster} blocks form a cluster and handle a tile of {queries} queries. A head has {tiles} tiles, so a key
is rotated that often, where the documents rotate it once for each query.""",
)
def tiles(e: Evidence) -> Says:
    launch = VERSIONS[V8](MAIN, e.target).launches[-1]
    queries, blocks, sms = launch.shape.queries, math.prod(launch.grid), e.gpu["sms"]
    count = -(-MAIN.seq_q // queries)
    return numbers(tiles=count, queries=queries, cluster=launch.cluster), checks(
        launch.cluster > 1, sms / 2 < blocks <= sms, count < MAIN.seq_q
    )


@finding(
    "v8-costs",
    """The whole call takes {v8}. Copies and products alone would take {floor} on this card, and the
same kernel without RoPE {plain:.1f}. So the rotations, on which the documents gave up, cost little.""",
)
def costs(e: Evidence) -> Says:
    us, plain = e.time(V8, "beyond", problem=MAIN)[MAIN], e.time("attention_v8", "embeddings", problem=PLAIN)[PLAIN]
    least = floor(MAIN, e.gpu)
    return numbers(v8=number(us.value, "µs", 1), floor=number(least, "µs", 1), plain=plain.value), checks(
        us > 2 * least, of_values(plain > 0.85 * us)
    )


@finding(
    "v8-time",
    """The authors' separate kernels take {separate} as long as V8, and PyTorch's fastest way {peer:.1} as long.""",
)
def taken(e: Evidence) -> Says:
    peer, separate = over(e, (MAIN,)), over(e, (MAIN,), (LOG_SEPARATE,))
    return numbers(peer=times(peer), separate=f"{separate[MAIN].value:.0f} times"), checks(
        faster(peer), faster(separate)
    )


@finding(
    "v8-core",
    """Set beside separate kernels with the same attention, V8 is {fused:.1} as fast. That is what fusing is worth
here; the rest is a better attention kernel.""",
)
def core(e: Evidence) -> Says:
    fused = over(e, (MAIN,), (SEPARATE,))
    core = e.speedup(SEPARATE, over=LOG_SEPARATE, study="beyond", problem=MAIN)
    return numbers(fused=times(fused)), checks(faster(fused), core > fused)


@finding(
    "v8-loses",
    """With one query and a single head of {keys:,} keys it takes {times:.0f} times as long as PyTorch: a few blocks
walk through all keys, and the rest of the card is idle.""",
)
def loses(e: Evidence) -> Says:
    us = e.speedup(V8, over="torch_rope_one_graph", study="peers", problem=LONELY)
    return numbers(keys=LONELY.seq_k, times=1 / us[LONELY].value), checks(slower(us))


@finding(
    "v8-worth",
    """With up to 64 tokens V8 beats separate kernels at every shape that we timed, and beats the hybrid or is level
with it. From 2,048 tokens on the three are about level.""",
)
def worth(e: Evidence) -> Says:
    few, many = ([p for p in BEYOND if of(p.seq_q)] for of in (lambda n: n <= 64, lambda n: n >= 2048))
    long = [over(e, many, (name,)) for name in (HYBRID, SEPARATE)]
    return numbers(), checks(
        not_slower(over(e, few, (HYBRID,))), faster(over(e, few, (SEPARATE,))),
        *(of_values(every(each > 0.95, each < 1.06)) for each in long),
    )  # fmt: skip
