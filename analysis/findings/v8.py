"""Can RoPE be fused? V8."""

import math
from dataclasses import replace

from kernels import VERSIONS, Problem

from ..evidence import Estimates, Evidence, NotMeasured, every
from ..measure.studies import FUSIONS, MAIN
from ..models.rivals import BEYOND, V8, floor, rivals
from ..record.text import number
from . import Says, checks, faster, finding, not_slower, numbers, of_values, slower
from .common import times

FULL, HYBRID, SEPARATE = FUSIONS
LOG_SEPARATE, PLAIN = "rope_separate", Problem("attention", 1, 4, seq_q=64, hdim=MAIN.hdim)
LONELY = Problem("rope", seq_q=1, seq_k=4096, hdim=128, rotary_dim=128)


def over(e: Evidence, name: str, *problems: Problem) -> Estimates:
    """How many times as fast as another version V8 is, by problem."""
    return e.speedup(V8, over=name, study="beyond", problem=problems).known


@finding("v8-tiles", """Here {cluster} blocks form a cluster and handle a tile of {queries} queries. A head has {tiles}
tiles, so a key is rotated that often, where the documents rotate it once for each query.""")
def tiles(e: Evidence) -> Says:
    launch = VERSIONS[V8](MAIN, e.target).launches[-1]
    queries, blocks, sms = launch.shape.queries, math.prod(launch.grid), e.gpu["sms"]
    count = -(-MAIN.seq_q // queries)
    return numbers(tiles=count, queries=queries, cluster=launch.cluster), checks(
        launch.cluster > 1, sms / 2 < blocks <= sms, count < MAIN.seq_q
    )


@finding("v8-costs", """The whole call takes {v8}, where copies and products alone would take {floor}. The same kernel
without RoPE takes {plain}, so the rotations, on which the documents gave up, cost little. Rotating all dims costs more:
then it takes {full}.""")
def costs(e: Evidence) -> Says:
    rotated = replace(MAIN, rotary_dim=MAIN.hdim)
    asked = ((V8, "beyond", MAIN), ("attention_v8", "embeddings", PLAIN), (V8, "embeddings", rotated))
    us, plain, full = (e.time(name, study, problem=problem)[problem] for name, study, problem in asked)
    taken = {"v8": us.value, "plain": plain.value, "full": full.value, "floor": floor(MAIN, e.gpu)}
    return numbers(**{name: number(each, "µs", 1) for name, each in taken.items()}), checks(
        us > 2 * taken["floor"], of_values(plain > 0.85 * us), full > us
    )


@finding("v8-time", """The authors' separate kernels take {separate:.0f} times as long as V8, and PyTorch's fastest way
{peer:.1} as long. Beside separate kernels with the same attention V8 is {fused:.1} as fast. That is what fusing is
worth here; the rest is a better attention kernel.""")
def taken(e: Evidence) -> Says:
    peer, fused, separate = next(iter(rivals(e, MAIN)), None), over(e, SEPARATE, MAIN), over(e, LOG_SEPARATE, MAIN)
    if not (peer and fused and separate):
        raise NotMeasured("nothing was timed beside V8 at this shape")
    graph = times(Estimates({MAIN: peer.over}, "×"))
    return numbers(peer=graph, separate=separate[MAIN].value, fused=times(fused)), checks(
        peer.version.startswith("torch"), faster(graph), faster(fused), separate > fused * fused
    )


@finding("v8-loses", """With one query and a single head of {keys:,} keys it takes {times:.0f} times as long as PyTorch:
a few blocks walk through all keys, and the rest of the card is idle.""")
def loses(e: Evidence) -> Says:
    us = e.speedup(V8, over="torch_rope_one_graph", study="peers", problem=LONELY)
    return numbers(keys=LONELY.seq_k, times=1 / us[LONELY].value), checks(slower(us))


@finding("v8-worth", """With up to 64 tokens V8 beats separate kernels at every shape that we timed, and beats the
hybrid or is level with it. From 2,048 tokens on the three are about level.""")
def worth(e: Evidence) -> Says:
    few, many = ([p for p in BEYOND if of(p.seq_q)] for of in (lambda n: n <= 64, lambda n: n >= 2048))
    level = (of_values(every(each > 0.95, each < 1.06)) for each in (over(e, HYBRID, *many), over(e, SEPARATE, *many)))
    return numbers(), checks(not_slower(over(e, HYBRID, *few)), faster(over(e, SEPARATE, *few)), *level)
