"""Can RoPE be fused? V8."""

import math
from dataclasses import replace
from typing import Any

from kernels import VERSIONS, Problem, Unsupported

from ..evidence import Estimate, Estimates, Evidence, NotMeasured, maximum
from ..models.rivals import BEYOND, HYBRID, SEPARATE, V8, floor, rivals
from ..studies import MAIN, STALLS
from . import Says, beside, checks, exact, faster, finding, not_slower, numbers, of_values, slower, ties, times

LOG_SEPARATE, PLAIN = "rope_separate", Problem("attention", 1, 4, seq_q=64, hdim=MAIN.hdim)
ROTATED = replace(MAIN, rotary_dim=MAIN.hdim)
HEADS, SHORT = 128, 128  # heads with which the card is full; queries up to which V8 leads
NEAR = 0.95  # of a speedup: less is clearly slower


def filled(problem: Problem) -> Problem:
    """The same with as many heads as fill the card: HEADS in all, in 8 sequences."""
    return replace(problem, batch=8, heads=HEADS // 8, kv_heads=HEADS // 8)


def over(e: Evidence, name: str, *problems: Problem) -> Estimates:
    """How many times as fast as another version V8 is, by problem."""
    return e.speedup(V8, over=name, study="beyond", problem=problems).known


RUNGS = {  # of the ladder, in words
    LOG_SEPARATE: "separate, the authors'",
    "rope_v8_portable": "1. a tile of queries",
    "rope_v8_mma": "2. cut head dim, tensor cores",
    V8: "3. wgmma, copies ahead: V8",
    HYBRID: "V8, with K rotated in front",
    SEPARATE: "V8, with Q and K rotated in front",
}


def rung(e: Evidence, name: str) -> tuple[Estimates, Estimates, Any]:
    """The time of a step of the ladder, its speedup over the step before, and its shape."""
    steps = [*RUNGS]
    before = steps[steps.index(name) - 1]
    try:
        shape = VERSIONS[name](MAIN, e.target).launches[-1].shape
    except Unsupported as refusal:
        raise NotMeasured(str(refusal)) from None
    return e.time(name, "beyond", problem=MAIN), e.speedup(name, before, "beyond", problem=MAIN), shape


@finding("v8-portable", """A tile has {queries} queries. The kernels of the log leave most threads of a block idle;
here all of them work on every key. The call takes {us:.1}, and this kernel needs nothing that only Hopper has.""")
def portable(e: Evidence) -> Says:
    us, gain, shape = rung(e, "rope_v8_portable")
    return numbers(us=us, **exact("plans", queries=shape.queries)), checks(faster(gain))


@finding("v8-mma", """{cluster} blocks now share {queries} queries, and each block multiplies its slices on tensor
cores. These take *TF32* numbers, which have fewer bits than a float32. So each number is split in two, and three
products are added; the result is as exact as our check asks of float32. The call takes {us:.1}.""")
def clustered(e: Evidence) -> Says:
    us, gain, shape = rung(e, "rope_v8_mma")
    given = exact("plans", queries=shape.queries, cluster=shape.cluster)
    check = e.study("beyond").check("rope_v8_mma", MAIN)
    return numbers(us=us, **given), checks(faster(gain), shape.cluster > 1, check is not None and check.status == "ok")


@finding("v8-wgmma", """This is V8, with {tile} queries a tile: {us:.1}. A head has {tiles} tiles, so each key is
rotated {tiles} times instead of {queries}. A larger tile would rotate less, and leave more of the card empty: {heads}
heads make {clusters} clusters of {cluster} blocks now.""")
def tiles(e: Evidence) -> Says:
    us, gain, shape = rung(e, V8)
    count = -(-MAIN.seq_q // shape.queries)
    shown = {"heads": MAIN.heads, "clusters": MAIN.heads * count, "cluster": shape.cluster}
    given = exact("plans", tile=shape.queries, tiles=count, queries=MAIN.seq_q, **shown)
    return numbers(us=us, **given), checks(faster(gain), count < MAIN.seq_q)


@finding("v8-costs", """V8 rotates where the keys are needed anyway, and that costs little: without RoPE the kernel
takes {plain:.1}. The least possible is {floor:.1}: an empty launch, and one read of Q, K and V from L2. What lies
between has no single cause: no kind of wait takes more than {wait} of its warps' time.""")
def costs(e: Evidence) -> Says:
    us, plain = e.time(V8, "peers", problem=MAIN), e.time("attention_v8", "embeddings", problem=PLAIN)
    least = Estimates({MAIN: Estimate.exact(floor(MAIN, e.gpu), "gpu.json")}, "µs")
    waits = maximum(*(e.stalled(V8, reason, problem=MAIN) for reason in STALLS if reason != "selected"))
    return numbers(plain=plain, floor=least, wait=waits.measured_in("%")), checks(
        us > least, of_values(plain[PLAIN] > 0.85 * us[MAIN]), waits < 0.25
    )


@finding("v8-time", """V8 is {hybrid:.2} as fast as the hybrid, with K rotated in front. (That kernel overlaps the
start of attention, by *programmatic dependent launch*.) It is {fused:.2} as fast as with Q and K rotated by two
kernels. The kernel in front writes all of K anew, also the dims that it does not rotate. One that rotates 128 dims in
place, or Q and K in one launch, would cost less; neither was timed. Against PyTorch's fastest way that we found,
compiled as one graph, V8 is {peer:.1} as fast.""")
def taken(e: Evidence) -> Says:
    peer, hybrid = next(iter(rivals(e, MAIN)), None), over(e, HYBRID, MAIN)
    fused, separate = over(e, SEPARATE, MAIN), over(e, LOG_SEPARATE, MAIN)
    if not (peer and fused and separate):
        raise NotMeasured("nothing was timed beside V8 at this shape")
    graph = times(Estimates({MAIN: peer.over}, "×"))
    front = VERSIONS[HYBRID](MAIN, e.target).launches[0].kernel.name
    return numbers(peer=graph, fused=times(fused), hybrid=times(hybrid)), checks(
        peer.version.startswith("torch_rope_one_graph"), faster(graph), faster(hybrid),
        fused > hybrid, separate > fused * fused, front.endswith("_pdl"),
    )


PARTLY = (replace(MAIN, hdim=128, rotary_dim=64), replace(MAIN, hdim=512), MAIN)  # some of their dims are rotated


@finding("v8-heads", """With {heads} heads V8 leads the hybrid at all four shapes of the table. With all {all:,} dims
rotated, where the kernel in front copies nothing in vain, four heads bring a tie; with {heads} heads V8 is {whole:.2}
as fast. At head dim {all:,} Q, K and V of so many heads do not fit the L2 cache, so the hybrid's second pass over K
has to go to memory.""")
def heads(e: Evidence) -> Says:
    few, many = (*PARTLY, ROTATED), [filled(problem) for problem in (*PARTLY, ROTATED)]
    gain = over(e, HYBRID, *many)
    shown = exact("timings of beyond", heads=HEADS, all=MAIN.hdim)
    return numbers(whole=times(gain.at(filled(ROTATED))), **shown), checks(
        faster(gain), faster(over(e, HYBRID, *PARTLY)), of_values(ties(over(e, HYBRID, ROTATED))),
        4 * math.prod(filled(ROTATED).q_shape) > int(e.gpu["l2_bytes"]),
        faster(over(e, SEPARATE, *few, *many)), len(gain) == len(many),
    )


@finding("v8-drawn", """Nor did we choose them all: at {all} problems drawn at random with up to {most} queries, V8
beats the hybrid at {won}, ties at {level} and loses at {lost}. They have up to {keys:,} keys, and head dims from
{small} to {large:,}.""")
def drawn(e: Evidence) -> Says:
    asked = [problem for problem in e.study("heldout").problems("rope") if problem.seq_q <= SHORT]
    gain = e.speedup(V8, over=HYBRID, study="heldout", problem=asked).known
    if not gain:
        raise NotMeasured("nothing drawn was timed: `make measure STUDY=heldout`")
    won, tied, lost = beside(gain)
    dims, keys = [problem.hdim for problem in gain], max(problem.seq_k for problem in gain)
    given = {"all": len(gain), "won": won, "level": tied, "lost": lost}
    shown = {name: Estimate.count(count, gain.values()) for name, count in given.items()}
    sizes = exact("timings of heldout", most=SHORT, keys=keys, small=min(dims), large=max(dims))
    return numbers(**shown, **sizes), checks(10 * won > 8 * len(gain), lost < 3)


@finding("v8-loses", """Up to {short} tokens V8 beats separate kernels, and beats the hybrid or is level with it. Of
the {all} shapes with {first} tokens or more V8 beats the hybrid at {won}, and at the worst it is {most:.2} as fast. It
still beats separate kernels at {still}. Where V8 is less than {near:.2} as fast as the hybrid, all dims are
rotated.""")
def loses(e: Evidence) -> Says:
    own = [p for p in e.study("map").problems("rope") if p.kv_heads == p.heads and p.seq_q == p.seq_k]
    gain = e.speedup(V8, over=HYBRID, study="map", problem=own).known
    lost = [problem for problem, each in gain.items() if each.side < 0]
    clearly = [problem for problem in lost if gain[problem].value < NEAR]
    if not lost:
        raise NotMeasured("V8 loses to the hybrid nowhere")
    first = min(problem.seq_q for problem in lost)
    few = gain.at(*(problem for problem in gain if problem.seq_q < first))
    won = [problem for problem, each in gain.items() if problem.seq_q >= first and each.side > 0]
    longer = [problem for problem in gain if problem.seq_q >= first]
    still = [each for each in e.speedup(V8, over=SEPARATE, study="map", problem=longer).values() if each.side > 0]
    counts = {"all": len(longer), "won": len(won), "still": len(still)}
    last = max((problem.seq_q for problem in few), default=0)
    short = [problem for problem in BEYOND if problem.seq_q <= last]
    ends = {name: Estimate.count(tokens, gain.values()) for name, tokens in (("short", last), ("first", first))}
    separate = e.speedup(V8, over=SEPARATE, study="map", problem=[*few])
    ends |= {name: Estimate.count(count, gain.values()) for name, count in counts.items()}
    near = times(Estimates({"": Estimate.count(NEAR, gain.values())}, "×"))
    return numbers(most=times(gain.slowest), near=near, **ends), checks(
        len(clearly) > 0, all(problem.rotary_dim == problem.hdim for problem in clearly),
        slower(gain.slowest), not_slower(few), 4 * len(won) < len(longer), 2 * len(still) > len(longer),
        faster(separate),
        not_slower(over(e, HYBRID, *short)), faster(over(e, SEPARATE, *short)),
    )  # fmt: skip
