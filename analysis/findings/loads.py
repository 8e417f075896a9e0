"""The 2x that was four floats: sinusoidal V5."""

from kernels import VERSIONS, Problem

from ..evidence import Estimates, Evidence, said
from ..studies import MAIN, SLICES
from . import Says, across, checks, faster, finding, not_faster, numbers, of_values, printed, slower, ties, times

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


@finding("loads-own", """By the authors' own times, separate kernels with float4 loads are {loads:.1} as fast as those
with scalar loads, with nothing fused in either. V5, which also loads float4, takes {v5:slower} longer than the float4
kernels at head dim {hdim}. At 512 it is {small:faster} faster.""")
def by_their_times(e: Evidence) -> Says:
    loads, v5 = own(FLOAT4, SCALAR), own(V5, FLOAT4)
    return numbers(loads=times(loads.at(HDIM)), v5=v5.at(HDIM), small=v5.at(512), hdim=HDIM), checks(
        loads > 1.5, slower(v5.at(2048, 4096))
    )


@finding("loads-here", """On as many SMs as their card has (*[their SMs](wave.html)*) V5 is {scalar:.1} as fast as the
scalar kernels, about what the write-up prints. Against the float4 kernels it takes {theirs:slower} longer there. On the
whole card it takes {float4:slower} longer, and it is not faster at any other head dim of the documents.""")
def here(e: Evidence) -> Says:
    scalar, shapes = (e.speedup(V5, over=SCALAR, study=study, hdim=PRINTED) for study in (SLICES, "log"))
    said, float4 = printed(V5, SCALAR, (HDIM,)), e.speedup(V5, over=FLOAT4, hdim=DIMS)
    theirs = e.speedup(V5, over=FLOAT4, study=SLICES, hdim=DIMS)
    return numbers(scalar=times(scalar.at(HDIM)), float4=float4.at(HDIM), theirs=theirs.at(HDIM)), checks(
        faster(scalar), faster(shapes), of_values(scalar.at(HDIM).within(0.1, said)), not_faster(float4),
        slower(float4.at(HDIM)), slower(theirs),
    )  # fmt: skip


def launched(version: str) -> tuple[int, int]:
    """How often a call makes the host wait, and how many kernels it launches, at head dim 512."""
    plan = VERSIONS[version](Problem("sinusoidal", 1, 4, seq_q=64, hdim=512))
    return len(plan.steps) - len(plan.launches), len(plan.launches)


@finding("loads-clock", """By the authors' clock, on the whole card, V5 is {v5:.1} as fast as the float4 kernels at head
dim 512, and no slower at 2048. It needs fewer launches, and no wait at the end of a call.""")
def clock(e: Evidence) -> Says:
    v5 = e.speedup(V5, over=FLOAT4, timer="launched", hdim=DIMS)
    return numbers(v5=times(v5.at(512))), checks(
        faster(v5.at(512)), of_values(v5.at(2048) > 1), not_faster(v5.at(4096, 8192)), launched(V5) < launched(FLOAT4)
    )


@finding("loads-sectors", """So with float4 a kernel asks for {keys} of the sectors of Q and K that scalar loads ask
for, and for as many of V. In total that is {all}. The traffic of shared memory does not change.""")
def sectors(e: Evidence) -> Says:
    def asked(what: str = "") -> Estimates:
        vector, scalar = (e.count(name, f"global.read.sectors{what}", hdim=DIMS) for name in (PLAIN, SCALAR_PLAIN))
        return (vector / scalar).measured_in("%")

    of_k, of_v, total = asked(".k"), asked(".v"), asked()
    fast, slow = (e.count(name, "shared.wavefronts", hdim=DIMS) for name in (PLAIN, SCALAR_PLAIN))
    waves = fast / slow
    return numbers(keys=of_k.at(HDIM), all=total.at(HDIM)), checks(
        of_k > 0.2499, of_k < 0.2501, of_v > 0.9999, of_v < 1.0001, total < 0.5, total > of_k, waves > 0.9999,
        waves < 1.0001
    )


@finding("loads-alone", """This has nothing to do with embeddings. Plain attention is {alone:.1} as fast when it loads
float4.""")
def alone(e: Evidence) -> Says:
    alone, separate = e.speedup(PLAIN, over=SCALAR_PLAIN, hdim=DIMS), e.speedup(FLOAT4, over=SCALAR)
    return numbers(alone=times(alone.at(HDIM))), checks(faster(alone), faster(separate))


@finding("loads-once", """When a separate kernel embeds K, V5 is as fast as the float4 kernels ({once}). But then it is
no longer fully fused.""")
def once(e: Evidence) -> Says:
    once = e.speedup(f"{V5}_k_embedded", over=FLOAT4, hdim=HDIM)
    return numbers(once=once), checks(ties(once), e.share_closed(V5, f"{V5}_k_embedded", FLOAT4, hdim=DIMS) > 0.5)


@finding("loads-hybrid", """The note's hybrid embeds K in front. Here it is {gain:.1} as fast as the separate kernels.
But it is {plain:faster} faster even than attention with *no* embedding, and an embedding cannot cost less than nothing.
So it does not win by fusing.""")
def hybrid(e: Evidence) -> Says:
    gain, plain = e.speedup(HYBRID, over=FLOAT4, hdim=DIMS), across(e, HYBRID, PLAIN, hdim=(2048, 4096, 8192))
    return numbers(gain=times(gain.at(HDIM)), plain=plain.at(HDIM)), checks(faster(gain), faster(plain))


@finding("loads-swap", """Swap the baselines and the verdicts swap. RoPE's V4, a full fusion, takes {rope:slower} longer
than RoPE's separate kernels, which load float4. Against the scalar sinusoidal kernels it would be {crossed:.1} as
fast.""")
def swap(e: Evidence) -> Says:
    rope, crossed = e.speedup("rope_v4", over="rope_separate"), across(e, "rope_v4", SCALAR, hdim=(HDIM,))
    return numbers(crossed=times(crossed), rope=rope.at(HDIM)), checks(slower(rope), faster(crossed))
