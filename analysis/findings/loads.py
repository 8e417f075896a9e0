"""The 2x that was four floats: sinusoidal V5."""

from kernels import VERSIONS, Problem

from ..evidence import Estimates, Evidence, said
from ..studies import MAIN, SLICES, THEIR_CLOCK
from . import Says, across, checks, faster, finding, not_faster, numbers, of_values, slower, ties, times

SCALAR, FLOAT4 = "sinusoidal_separate_scalar", "sinusoidal_separate_float4"
V5, HYBRID = "sinusoidal_v5", "sinusoidal_hybrid_v1"
PLAIN, SCALAR_PLAIN = "attention_online_fixed", "attention_online_scalar"  # no embedding at all
HDIM = MAIN.hdim  # of this page
PRINTED = (512, 2048, 4096)  # head dims that the documents print times of all three for
DIMS = (*PRINTED, 8192)
OWN = {  # rows of the authors' times by head dim; those of V5 and of float4 loads are of one program
    SCALAR: ("X075", "X076", "X077"),
    FLOAT4: ("X069", "X070", "X071"),
    V5: ("X072", "X073", "X074"),
}


def own(version: str, over: str) -> Estimates:
    """Speedups by the authors' own times."""
    rows = zip(PRINTED, OWN[over], OWN[version])
    return Estimates({hdim: said(slow) / said(fast) for hdim, slow, fast in rows}, "×")


@finding("loads-own", """By the authors' own times at head dim {hdim}, separate kernels with float4 loads are
{loads:.2} as fast as those with scalar loads, with nothing fused in either. V5, which also loads float4, is {v5:.2} as
fast as the float4 kernels. At 512 it is {small:.2} as fast.""")
def by_their_times(e: Evidence) -> Says:
    loads, v5 = own(FLOAT4, SCALAR), own(V5, FLOAT4)
    return numbers(loads=times(loads.at(HDIM)), v5=times(v5.at(HDIM)), small=times(v5.at(512)), hdim=HDIM), checks(
        loads > 1.5, slower(v5.at(2048, 4096))
    )


@finding("loads-here", """On as many SMs as their card has (*[their SMs](wave.html)*), and by their clock, V5 is
{scalar:.2} as fast as the scalar kernels at head dim {hdim}. It is {float4:.2} as fast as the float4 kernels. Both
ratios are within 10 % of theirs. At 512 V5 is {small:.2} as fast as the float4 kernels, which is more than their times
give.""")
def here(e: Evidence) -> Says:
    clock = e.under(THEIR_CLOCK)
    scalar, float4 = (clock.speedup(V5, over=over, hdim=PRINTED) for over in (SCALAR, FLOAT4))
    near = [each.at(HDIM).within(0.1, own(V5, over).at(HDIM)) for each, over in ((scalar, SCALAR), (float4, FLOAT4))]
    given = {"scalar": scalar.at(HDIM), "float4": float4.at(HDIM), "small": float4.at(512)}
    return numbers(hdim=HDIM, **{name: times(gain) for name, gain in given.items()}), checks(
        faster(scalar), *map(of_values, near), of_values(float4.at(512) > 1.1 * own(V5, FLOAT4)[512].value)
    )


def launched(version: str) -> tuple[int, int]:
    """How often a call makes the host wait, and how many kernels it launches, at head dim 512."""
    plan = VERSIONS[version](Problem("sinusoidal", 1, 4, seq_q=64, hdim=512))
    return len(plan.steps) - len(plan.launches), len(plan.launches)


@finding("loads-clock", """The lead at 512 comes from waits of the host. Their programs repeat a call many times. That
of the float4 kernels makes three launches and waits at the end of each call; that of V5 makes one launch and does not
wait. By the GPU alone, on their SMs, V5 is slower than the float4 kernels at every head dim of the documents,
{theirs:.2} as fast at {hdim}. On the whole card it is nowhere faster.""")
def clock(e: Evidence) -> Says:
    theirs, whole = (e.speedup(V5, over=FLOAT4, study=study, hdim=DIMS) for study in (SLICES, "log"))
    return numbers(theirs=times(theirs.at(HDIM)), hdim=HDIM), checks(
        slower(theirs), not_faster(whole), launched(V5) == (0, 1), launched(FLOAT4) == (1, 3)
    )


@finding("loads-sectors", """So with float4 a kernel asks for {keys} of the sectors of Q and K that scalar loads ask
for. The loads of V do not change, and all sectors together fall to {all}.""")
def sectors(e: Evidence) -> Says:
    def asked(what: str = "") -> Estimates:
        vector, scalar = (e.count(name, f"global.read.sectors{what}", hdim=DIMS) for name in (PLAIN, SCALAR_PLAIN))
        return (vector / scalar).measured_in("%")

    of_k, of_v, total = asked(".k"), asked(".v"), asked()
    return numbers(keys=of_k.at(HDIM), all=total.at(HDIM)), checks(
        of_k > 0.2499, of_k < 0.2501, of_v > 0.9999, of_v < 1.0001, total < 0.5, total > of_k
    )


@finding("loads-alone", """The loads alone explain a 2x. Take attention without any embedding, on *their SMs* at head
dim {hdim}: with float4 loads it is {alone:.2} as fast as a copy with four scalar loads in the place of each.""")
def alone(e: Evidence) -> Says:
    alone, separate = e.speedup(PLAIN, over=SCALAR_PLAIN, study=SLICES, hdim=DIMS), e.speedup(FLOAT4, over=SCALAR)
    return numbers(alone=times(alone.at(HDIM)), hdim=HDIM), checks(
        faster(alone), alone.at(HDIM) > 2, faster(separate), faster(e.speedup(PLAIN, over=SCALAR_PLAIN, hdim=DIMS))
    )


@finding("loads-once", """V5 saves launches, but its blocks embed every key again, 64 times in all. With a copy of V5
whose keys a kernel in front embeds, there is a tie with the float4 kernels ({once} at head dim {hdim}, on the whole
card). But that copy is no longer fully fused.""")
def once(e: Evidence) -> Says:
    once = e.speedup(f"{V5}_k_embedded", over=FLOAT4, hdim=HDIM)
    closed = e.share_closed(V5, f"{V5}_k_embedded", FLOAT4, hdim=DIMS)
    return numbers(once=once, hdim=HDIM), checks(ties(once), closed > 0.5)


@finding("loads-hybrid", """The note's hybrid embeds K in front. Here it is {gain:.2} as fast as the separate kernels.
It wins by its loop, not by fusing. It is {plain:.2} as fast even as `attention_online_fixed`, which loads float4,
embeds nothing and has another loop. In the hybrid's own loop embedding Q costs next to nothing: without it, the hybrid
is {bare:.2} as fast.""")
def hybrid(e: Evidence) -> Says:
    gain, plain = e.speedup(HYBRID, over=FLOAT4, hdim=DIMS), across(e, HYBRID, PLAIN, hdim=(2048, 4096, 8192))
    bare = e.speedup(f"{HYBRID}_no_embedding", over=HYBRID, hdim=DIMS)
    return numbers(gain=times(gain.at(HDIM)), plain=times(plain.at(HDIM)), bare=times(bare.at(HDIM))), checks(
        faster(gain), faster(plain), ties(bare)
    )


@finding("loads-swap", """The write-up explains it by the mathematics: a sinusoidal embedding does not depend on what
is in Q and K. The difference is the baseline: swap the baselines, and the verdicts swap. On the whole card RoPE's V4,
a full fusion, is {rope:.2} as fast as RoPE's separate kernels, which load float4. It is {crossed:.2} as fast as the
sinusoidal separate kernels, which load one float at a time (and add where RoPE rotates).""")
def swap(e: Evidence) -> Says:
    rope, crossed = e.speedup("rope_v4", over="rope_separate"), across(e, "rope_v4", SCALAR, hdim=(HDIM,))
    return numbers(crossed=times(crossed), rope=times(rope.at(HDIM))), checks(slower(rope), faster(crossed))
