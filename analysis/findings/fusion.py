"""Why one embedding fused and the other did not."""

from __future__ import annotations

from ..claims.measures import embedded
from ..evidence import Evidence
from . import Says, checks, faster, finding, numbers, slower, ties
from .common import across

SCALAR, FLOAT4 = "sinusoidal_separate_scalar", "sinusoidal_separate_float4"
HYBRID, UNEMBEDDED = "sinusoidal_hybrid_v1", "sinusoidal_hybrid_v1_no_embedding"
PLAIN, SEPARATE = "attention_online_fixed", "rope_separate"
V5 = "sinusoidal_v5"
HDIM = 2048
FROM_2048 = (2048, 4096, 8192)
DIMS = (512, *FROM_2048)


@finding("fusion-crossed", """**Yes: against separate kernels that also load four floats, neither full fusion pays.**
RoPE V4 computes its frequencies once per block, as sinusoidal V5 does; at its best head dim it takes {rope:slower}
longer than RoPE's separate kernels on an {card}. Against the slow sinusoidal baseline it would look {crossed} as fast
at 2048.""")
def crossed(e: Evidence) -> Says:
    rope, over = e.speedup("rope_v4", over=SEPARATE), across(e, "rope_v4", SCALAR, hdim=(HDIM,))
    float4 = e.speedup(V5, over=FLOAT4, hdim=DIMS)
    return numbers(rope=rope.fastest, crossed=over), checks(slower(rope), slower(float4), faster(over))


@finding("fusion-recompute", """**Not by itself: sinusoidal V5, a published winner, recomputes more than RoPE kernels
that lost.** At head dim 2048 sinusoidal V5 embeds each element {v5_embeds} times and runs at {v5} the speed of separate
kernels on an {card}. RoPE V3 rotates an element of Q or K {v3_embeds} times in the mean, and runs at {v3}; V4 does so
{v4_embeds} times and runs at {v4}.""")
def recompute(e: Evidence) -> Says:
    v5_embeds, v3_embeds, v4_embeds = (embedded(e, name, HDIM)[HDIM] for name in (V5, "rope_v3", "rope_v4"))
    v5 = e.speedup(V5, over=FLOAT4, hdim=HDIM)
    v3, v4 = (e.speedup(name, over=SEPARATE, hdim=HDIM) for name in ("rope_v3", "rope_v4"))
    return numbers(
        v5=v5, v3=v3, v4=v4,
        v5_embeds=v5_embeds, v3_embeds=v3_embeds, v4_embeds=v4_embeds,
    ), checks(v5_embeds > v4_embeds, v4_embeds > v3_embeds, faster(v4 / v3), slower(v3), slower(v4))  # fmt: skip


@finding("fusion-hybrid", """From head dim 2048 on the sinusoidal hybrid is {gain} as fast as separate kernels on an
{card}. That gain comes from its attention loop, not from fusion: without its query's embedding the hybrid takes as long
({kept}). It is then still {plain} as fast as the log's attention kernel alone, though it launches a kernel for K as
well.""")
def hybrid(e: Evidence) -> Says:
    gain = e.speedup(HYBRID, over=FLOAT4, hdim=FROM_2048)
    kept = e.speedup(UNEMBEDDED, over=HYBRID, hdim=FROM_2048)
    plain = across(e, UNEMBEDDED, PLAIN, study="ablation", hdim=FROM_2048)
    return numbers(gain=gain, kept=kept, plain=plain), checks(faster(gain), ties(kept), faster(plain))


@finding("fusion-saving", """On an {card} the log's attention kernel without an embedding is {sinusoidal} as fast as
separate sinusoidal kernels and {rotary} as fast as separate RoPE kernels; an embedding for free would gain about that
much.""")
def saving(e: Evidence) -> Says:
    sinusoidal, rotary = (across(e, PLAIN, base, hdim=DIMS) for base in (FLOAT4, SEPARATE))
    return numbers(sinusoidal=sinusoidal, rotary=rotary), checks(faster(sinusoidal), faster(rotary))
