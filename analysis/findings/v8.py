"""Can RoPE be fused? V8."""

import math
from dataclasses import replace

from kernels import VERSIONS, Problem

from ..evidence import Estimates, Evidence, NotMeasured
from ..evidence.interval import TIE
from ..measure.studies import FUSIONS, MAIN
from ..models.advice import shares_keys
from ..models.rivals import BEYOND, V8, floor, rivals
from ..record.text import number
from . import Says, checks, faster, finding, not_slower, numbers, of_values, slower
from .common import times

FULL, HYBRID, SEPARATE = FUSIONS
LOG_SEPARATE, PLAIN = "rope_separate", Problem("attention", 1, 4, seq_q=64, hdim=MAIN.hdim)


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


@finding("v8-costs", """The whole call takes {v8}, where copies from the L2 cache and products on tensor cores alone
would take {floor}. The same kernel without RoPE takes {plain}, so the rotations, on which the documents gave up, cost
little. Rotating all dims costs more: then it takes {full}.""")
def costs(e: Evidence) -> Says:
    rotated = replace(MAIN, rotary_dim=MAIN.hdim)
    asked = ((V8, "beyond", MAIN), ("attention_v8", "embeddings", PLAIN), (V8, "embeddings", rotated))
    us, plain, full = (e.time(name, study, problem=problem)[problem] for name, study, problem in asked)
    taken = {"v8": us.value, "plain": plain.value, "full": full.value, "floor": floor(MAIN, e.gpu)}
    return numbers(**{name: number(each, "µs", 1) for name, each in taken.items()}), checks(
        us > 2 * taken["floor"], of_values(plain > 0.85 * us), full > us
    )


@finding("v8-waits", """A warp issues an instruction in {busy} of its time. In the rest it waits, for K, for the parts,
for the weights, or for the result before.""")
def waits(e: Evidence) -> Says:
    busy = e.stalled(V8, "selected", problem=MAIN)
    return numbers(busy=busy), checks(busy < 0.4)


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


@finding("v8-worth", """With up to 64 tokens V8 beats separate kernels at every shape that we timed, and beats the
hybrid or is level with it.""")
def worth(e: Evidence) -> Says:
    few = [problem for problem in BEYOND if problem.seq_q <= 64]
    return numbers(), checks(not_slower(over(e, HYBRID, *few)), faster(over(e, SEPARATE, *few)))


@finding("v8-loses", """Each tile rotates all keys again, and a long sequence has many tiles. From {first} tokens on
the hybrid often wins. At the worst V8 takes {most:slower} longer.""")
def loses(e: Evidence) -> Says:
    own = [problem for problem in e.study("map").problems("rope") if not shares_keys(problem)]
    gain = e.speedup(V8, over=HYBRID, study="map", problem=own).known
    lost = [problem for problem, each in gain.items() if each.value < 1 / TIE]
    if not lost:
        raise NotMeasured("V8 loses to the hybrid nowhere")
    first = min(problem.seq_q for problem in lost)
    few = gain.at(*(problem for problem in gain if problem.seq_q < first))
    often = 3 * len(lost) > len(gain) - len(few)
    return numbers(first=first, most=gain.slowest), checks(slower(gain.slowest), not_slower(few), first > 64, often)
