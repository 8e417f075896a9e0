"""The steps of sinusoidal embeddings: why each gains or loses. Numbers are of head dim 2048."""

from kernels import VERSIONS

from ..evidence import Evidence
from . import Says, checks, exact, faster, finding, not_faster, numbers, slower, times

SCALAR, FLOAT4 = "sinusoidal_separate_scalar", "sinusoidal_separate_float4"
V1, V2, V3, V4, V5 = (f"sinusoidal_v{place}" for place in range(1, 6))
HYBRID, PLAIN = "sinusoidal_hybrid_v1", "attention_online_fixed"
CONTROL, CONTROL_SEPARATE = "control_sinusoidal_hybrid_v1", "control_sinusoidal_separate_float4"
HDIM = 2048
DIMS = (512, 2048, 4096, 8192)  # of the documents


@finding("sinusoidal-loads", """The note's kernels also store `float4`, unroll the dot product by four, and wait for the
GPU once a call. But loads alone can gain more than all of these do together: plain attention, which embeds nothing, is
{plain:.1} as fast with `float4` as with scalar loads.""")
def loads(e: Evidence) -> Says:
    plain, separate = e.speedup(PLAIN, "attention_online_scalar", hdim=DIMS), e.speedup(FLOAT4, SCALAR, hdim=DIMS)
    return numbers(plain=times(plain.at(HDIM))), checks(
        faster(plain), faster(separate), plain.at(HDIM) > separate.at(HDIM)
    )


@finding("sinusoidal-race", """All {all} kernels pass their checks, and may still [race](checks.html): none has a
barrier between the two reductions of its softmax.""")
def race(e: Evidence) -> Says:
    names = e.study().versions("sinusoidal")
    kernels = [name for name in names if not VERSIONS[name].fast_math]
    right = (e.status(name, "ok", hdim=DIMS) > 0 for name in kernels)
    races = (e.hazards(name, "race", hdim=DIMS) > 0 for name in kernels)
    return exact("plans", all=len(kernels)), checks(*right, *races)


@finding("sinusoidal-v1", """The tables cost it: with every addition kept and the values taken from registers, which
gives a wrong result on purpose, nearly all of the gap to scalar separate kernels closes.""")
def v1(e: Evidence) -> Says:
    slow, share = e.speedup(V1, SCALAR, hdim=DIMS), e.share_closed(V1, f"{V1}_registers", SCALAR, hdim=DIMS)
    return numbers(), checks(slower(slow), share > 0.8)


@finding("sinusoidal-v2", """Still the tables: for four dims it makes six loads where separate kernels make two. V5
loads as V2 does and computes what the tables hold, and is {computed:.1} as fast.""")
def v2(e: Evidence) -> Says:
    slow, computed = e.speedup(V2, FLOAT4, hdim=DIMS), e.speedup(V5, V2, hdim=DIMS)
    return numbers(computed=times(computed.at(HDIM))), checks(slower(slow), faster(computed))


@finding("sinusoidal-v3", """Accurate `sinf` and `cosf` are long sequences of multiply-adds, and V3 is {slow:.2} as fast
as V1. Built with fast-math, which the write-up does not mention, it is {quick:.1} as fast as V1.""")
def v3(e: Evidence) -> Says:
    slow, quick = e.speedup(V3, V1, hdim=DIMS), e.speedup(f"{V3}_fast_math", V1, hdim=DIMS[:3])
    return numbers(slow=times(slow.at(HDIM)), quick=times(quick.at(HDIM))), checks(slower(slow), faster(quick))


@finding("sinusoidal-v4", """The powers are gone, and it still loads one float at a time. Built with fast-math, whose
sines cost little, it is {vector:.2} as fast as separate kernels with float4 loads.""")
def v4(e: Evidence) -> Says:
    gain, vector = e.speedup(V4, V3, hdim=DIMS), e.speedup(f"{V4}_fast_math", FLOAT4, hdim=DIMS)
    return numbers(vector=times(vector.at(HDIM))), checks(faster(gain), slower(vector))


@finding("sinusoidal-v5", """V5 does not load scalars: with equally fast sines it is {loads:.1} as fast as V4. But it is
{over:.2} as fast as separate kernels that load float4 too, since it embeds each key again for every query. At no head
dim of the documents is it faster than those. At head dim 128, which the documents do not print, it is {small:.2} as
fast as those.""")
def v5(e: Evidence) -> Says:
    gain, over = e.speedup(V5, f"{V4}_fast_math", hdim=DIMS), e.speedup(V5, FLOAT4, hdim=DIMS)
    share = e.share_closed(V5, f"{V5}_k_embedded", FLOAT4, hdim=DIMS)
    small = e.speedup(V5, FLOAT4, study="controlled", hdim=128)
    return numbers(loads=times(gain.at(HDIM)), over=times(over.at(HDIM)), small=times(small)), checks(
        faster(gain), not_faster(over), slower(over.at(HDIM)), share > 0.5, faster(small)
    )


@finding("sinusoidal-hybrid-loop", """The loop reads the query from shared memory and is unrolled further, so that more
loads are in flight. A copy in CUDA C++ that is fused in the same way, but unrolled less, lost {share} of the lead. Of
the documents' sinusoidal kernels, separate ones too, the hybrid is the fastest at each of their head dims.""")
def hybrid_loop(e: Evidence) -> Says:
    share = e.share_closed(CONTROL, f"{CONTROL}_unroll_2", CONTROL_SEPARATE, study="ablation", hdim=DIMS)
    lead = e.speedup(CONTROL, over=CONTROL_SEPARATE, study="ablation", hdim=DIMS)
    others = (SCALAR, FLOAT4, V1, V2, V3, V4, V5, "sinusoidal_hybrid_v2")
    return numbers(share=share.at(HDIM)), checks(
        faster(lead), share > 0.5, share.at(HDIM) < 1, *(faster(e.speedup(HYBRID, each, hdim=DIMS)) for each in others)
    )


@finding("sinusoidal-hybrid-v2", """It embeds the query again for every key, and is {again:.2} as fast as the first
hybrid, which keeps it in shared memory. That is the whole lead.""")
def hybrid_v2(e: Evidence) -> Says:
    again, over = (e.speedup("sinusoidal_hybrid_v2", base, hdim=DIMS) for base in (HYBRID, FLOAT4))
    return numbers(again=times(again.at(HDIM))), checks(slower(again), over < 1.05, not_faster(over.at(8192)))
