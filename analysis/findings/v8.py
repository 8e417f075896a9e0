"""Can RoPE be fused? V8."""

import math
from dataclasses import replace

from kernels import VERSIONS, Problem

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..models.rivals import BEYOND, HYBRID, SEPARATE, V8, floor, rivals
from ..studies import MAIN
from . import Says, checks, exact, faster, finding, not_slower, numbers, of_values, slower, times

LOG_SEPARATE, PLAIN = "rope_separate", Problem("attention", 1, 4, seq_q=64, hdim=MAIN.hdim)
ROTATED = replace(MAIN, rotary_dim=MAIN.hdim)


def over(e: Evidence, name: str, *problems: Problem) -> Estimates:
    """How many times as fast as another version V8 is, by problem."""
    return e.speedup(V8, over=name, study="beyond", problem=problems).known


@finding("v8-tiles", """Here {cluster} blocks form a cluster and handle a tile of {queries} queries. Each key is rotated
once per tile, {tiles} times in all; in most of the documents' kernels, once per query.""")
def tiles(e: Evidence) -> Says:
    launch = VERSIONS[V8](MAIN, e.target).launches[-1]
    queries, blocks, sms = launch.shape.queries, math.prod(launch.grid), e.gpu["sms"]
    count = -(-MAIN.seq_q // queries)
    return exact("plans", tiles=count, queries=queries, cluster=launch.cluster), checks(
        launch.cluster > 1, sms / 2 < blocks <= sms, count < MAIN.seq_q
    )


@finding("v8-costs", """The whole call takes {v8:.1}. If it only copied from the L2 cache and multiplied on tensor
cores, it would take {floor:.1}. The rotations, on which the documents gave up, cost little: without RoPE the kernel
takes {plain:.1}. With all dims rotated it takes {whole:.1}.""")
def costs(e: Evidence) -> Says:
    asked = ((V8, "peers", MAIN), ("attention_v8", "embeddings", PLAIN), (V8, "embeddings", ROTATED))
    us, plain, whole = (e.time(name, study, problem=problem)[problem] for name, study, problem in asked)
    taken = {"v8": us, "plain": plain, "floor": Estimate.exact(floor(MAIN, e.gpu), "gpu.json"), "whole": whole}
    return numbers(**{name: Estimates({MAIN: each}, "µs") for name, each in taken.items()}), checks(
        us > 2 * taken["floor"], of_values(plain > 0.85 * us), whole > us
    )


@finding("v8-waits", """A warp issues an instruction in {busy} of its time, and waits in the rest.""")
def waits(e: Evidence) -> Says:
    busy = e.stalled(V8, "selected", problem=MAIN)
    return numbers(busy=busy), checks(busy < 0.4)


@finding("v8-time", """The authors' separate kernels take {separate:.0} as long as V8. PyTorch's fastest way
takes {peer:.1} as long. Most of this gain is not fusing but a better attention kernel: separate kernels with V8's own
attention take {fused:.1} as long. A hybrid with that attention takes only {hybrid:slower} longer. With all dims rotated
fusing is worth less.""")
def taken(e: Evidence) -> Says:
    whole = over(e, SEPARATE, ROTATED)
    peer, hybrid = next(iter(rivals(e, MAIN)), None), e.speedup(HYBRID, over=V8, study="beyond", problem=MAIN)
    fused, separate = over(e, SEPARATE, MAIN), over(e, LOG_SEPARATE, MAIN)
    if not (peer and fused and separate):
        raise NotMeasured("nothing was timed beside V8 at this shape")
    graph = times(Estimates({MAIN: peer.over}, "×"))
    return numbers(peer=graph, separate=times(separate), fused=times(fused), hybrid=hybrid), checks(
        peer.version.startswith("torch"), faster(graph), slower(hybrid), fused * hybrid > 1, separate > fused * fused,
        fused[MAIN] > whole[ROTATED], faster(whole),
    )


@finding("v8-worth", """Up to {few} tokens, at the documents' shapes and on a full card, V8 beats separate kernels. It
beats the hybrid, too, or is level with it.""")
def worth(e: Evidence) -> Says:
    few = [problem for problem in BEYOND if problem.seq_q <= MAIN.seq_q]
    return numbers(few=MAIN.seq_q), checks(not_slower(over(e, HYBRID, *few)), faster(over(e, SEPARATE, *few)))


@finding("v8-loses", """Each tile rotates all keys again, and a long sequence has many tiles. From {first} tokens on
fusing mostly gains nothing. At the worst V8 takes {most:slower} longer than the hybrid.""")
def loses(e: Evidence) -> Says:
    own = [problem for problem in e.study("map").problems("rope") if problem.kv_heads == problem.heads]
    gain = e.speedup(V8, over=HYBRID, study="map", problem=own).known
    lost = [problem for problem, each in gain.items() if each.side < 0]
    if not lost:
        raise NotMeasured("V8 loses to the hybrid nowhere")
    first = min(problem.seq_q for problem in lost)
    few = gain.at(*(problem for problem in gain if problem.seq_q < first))
    won = [problem for problem, each in gain.items() if problem.seq_q >= first and each.side > 0]
    mostly = 2 * len(won) < len(gain) - len(few)
    return numbers(first=Estimate.count(first, gain.values()), most=gain.slowest), checks(
        slower(gain.slowest), not_slower(few), first > 64, mostly
    )
