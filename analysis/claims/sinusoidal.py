"""Claims of the documents on sinusoidal embeddings, and what decides it."""

from ..evidence import Estimates, Evidence, maximum, said, stated
from .claim import Tests, cause, closes, count, effect, headline, loses, number, speed, undecided, universal, wins
from .measures import FIXED, FLOAT4, SCALAR, SEPARATE, over

V5, HYBRID_V1, HYBRID_V2 = "sinusoidal_v5", "sinusoidal_hybrid_v1", "sinusoidal_hybrid_v2"
DIMS = (512, 2048, 4096)  # head dims that the write-up prints a time for
ALL = (*DIMS, 8192)


def calls(e: Evidence, per: str) -> Estimates:
    """Calls of sincos of V5, for each value of `per` (the name of a size) and dim of a head."""
    heads, dims = (e.size(V5, column, hdim=DIMS) for column in ("heads", "hdim"))
    rows = [e.size(V5, column, hdim=DIMS) for column in per.split()]
    return e.count(V5, "event.sincos", hdim=DIMS) / heads / dims / sum(rows[1:], rows[0])


@number
def b01(e: Evidence) -> Tests:
    """V1, full fusion with tables, runs at 0.42, 0.43 and 0.58 times the speed of the baseline at head dim 512, 2048
    and 4096."""
    yield speed(e, "sinusoidal_v1", SCALAR, DIMS, published=("N315", "N317", "N319"))


@cause
def b02(e: Evidence) -> Tests:
    """V1 is slow because it loads sines and cosines from global memory for every pair of query and key, 8.4 million
    loads at head dim 2048."""
    yield from closes(e, "sinusoidal_v1", "sinusoidal_v1_registers", SCALAR, DIMS, "table loads are what costs")
    loads, plain = e.count("sinusoidal_v1", "inst.ld.global", hdim=2048), e.count(
        SCALAR, "inst.ld.global", hdim=2048, launch=2
    )
    yield headline(
        "table loads of a head at head dim 2048, for Q and K",
        (loads - plain) / e.size("sinusoidal_v1", "heads", hdim=2048),
        equals="N320",
        digits=2,
        unit="loads",
        part="8.4 million loads",
        kind="count",
    )


@number
def b03(e: Evidence) -> Tests:
    """Computing instead of loading (V3) is 2.13, 2.33 and 1.72 times as fast as the tables, because special functions
    are cheap and memory loads expensive."""
    yield headline(
        "computing (V3) over tables (V1); no document says whether it was compiled with fast math",
        {
            flag: e.speedup(version, "sinusoidal_v1", hdim=DIMS)
            for flag, version in (("without fast math", "sinusoidal_v3"), ("with it", "sinusoidal_v3_fast_math"))
        },
        published=("N323", "N326", "N329") * 2,
    )


@number
def b04(e: Evidence) -> Tests:
    """V3 already beats the separate kernels."""
    yield speed(e, "sinusoidal_v3", SCALAR, DIMS, direction="faster")


@number
def b05(e: Evidence) -> Tests:
    """powf is expensive, and caching the frequencies (V4) speeds the kernel up."""
    yield speed(e, "sinusoidal_v4", "sinusoidal_v3", DIMS, direction="faster")


@count
def b06(e: Evidence) -> Tests:
    """__sincosf gives sine and cosine in a single operation of the special-function unit."""
    yield headline(
        "sine and cosine instructions of the unit for each call of which both results are used (RoPE V2)",
        (e.count("rope_v2", "inst.mufu.sin", hdim=(128, 512)) + e.count("rope_v2", "inst.mufu.cos", hdim=(128, 512)))
        / e.count("rope_v2", "event.sincos", hdim=(128, 512)),
        equals=1,
        unit="a call",
    )


@number
def b07(e: Evidence) -> Tests:
    """V5, full fusion, is 2.0, 1.9 and 1.4 times as fast as separate kernels at head dim 512, 2048 and 4096; fusion
    works."""
    yield speed(
        e, V5, SCALAR, DIMS, published=("N332", "N335", "N338"), part="faster than its baseline, which loads scalars"
    )
    yield speed(e, V5, FLOAT4, DIMS, direction="faster", part="fusion works, equal loads compared")


@universal
def b08(e: Evidence) -> Tests:
    """Separate kernels are the fastest for sinusoidal embeddings at every head dim."""
    yield headline(
        "separate float4 kernels over",
        {v: e.speedup(FLOAT4, v, hdim=ALL) for v in (V5, HYBRID_V1, HYBRID_V2)},
        least=0.97,
    )


@number
def b09(e: Evidence) -> Tests:
    """V5 is 4 to 23 % slower than separate kernels, which are 4 % faster at head dim 2048 and 12 % at 4096."""
    yield speed(e, FLOAT4, V5, DIMS, published_range=(1 + said("N021") / 100, 1 + said("N022") / 100))


@cause
def b10(e: Evidence) -> Tests:
    """V5's problem is 32 times as many calls of sincosf, 16.8 million, since it computes K's embedding again for every
    query."""
    yield from closes(e, V5, "sinusoidal_v5_k_embedded", FLOAT4, DIMS, part="K embedded again is what costs")
    yield headline(
        "calls for each element of Q and K, where one would do",
        calls(e, "seq_q seq_k"),
        equals="N025",
        part="32 times as many calls",
        kind="count",
    )


@number
def b11(e: Evidence) -> Tests:
    """The hybrid V1 is 3 to 7 % slower than separate kernels and ties with them at head dim 4096."""
    separate = stated(ALL, "N077", "N078", "N079", "N080")
    printed = separate / stated(ALL, "N069", "N070", "N071", "N072")
    yield speed(e, HYBRID_V1, FLOAT4, ALL, published=tuple(printed.values()))


@cause
def b12(e: Evidence) -> Tests:
    """What the hybrid V1 loses it loses to the shared-memory bandwidth of its cache of Q, and to a more complex
    kernel."""
    yield headline(
        "the query row from shared memory over the same from global memory",
        e.speedup("attention_online_shared_query", FIXED, hdim=(512, 2048)),
        most=0.97,
    )
    yield loses(e, HYBRID_V1, FLOAT4, (512, 2048))


@cause
def b13(e: Evidence) -> Tests:
    """The hybrid V2 is 11 to 45 % slower than separate kernels, because it embeds Q again for every key."""
    yield from closes(e, HYBRID_V2, HYBRID_V1, FLOAT4, ALL, part="Q embedded again is what costs")
    yield headline(
        "separate float4 kernels over it, in parts of what the document's times give",
        e.speedup(FLOAT4, HYBRID_V2, hdim=ALL)
        / (stated(ALL, "N073", "N074", "N075", "N076") / stated(ALL, "N077", "N078", "N079", "N080")),
        between=(1 / 1.1, 1.1),
        part="slower by 11 to 45 %",
        kind="universal",
    )


@count
def b14(e: Evidence) -> Tests:
    """The hybrid V1 and separate kernels make no call of sincosf, so that both compute the same; only complexity and
    memory patterns differ."""
    yield headline(
        "floating-point instructions of PTX, the hybrid over separate kernels",
        over(e.count, HYBRID_V1, FLOAT4, "inst.fp32 inst.fma", hdim=(512, 2048)),
        equals=1,
        digits=2,
    )


@count
def b15(e: Evidence) -> Tests:
    """Hybrid V1 and separate kernels both load 7.3 MB; the hybrid saves one write of 2.1 MB, 10 % of the traffic."""
    yield headline(
        "that write's share of the sectors that the launches of separate kernels touch, each once a launch",
        100
        * e.count(FLOAT4, "global.write.sectors.q_embedded", hdim=2048)
        / e.count(FLOAT4, "global.unique_sectors.read global.unique_sectors.write", hdim=2048),
        equals="N065",
        digits=2,
        unit="%",
        part="10 % of the traffic",
    )
    yield headline(
        "its share of what the document lists, which leaves out that the attention reads embedded Q and K again",
        100 * said("N063") / (said("N059") + said("N060") + said("N061") + said("N062")),
        equals="N065",
        digits=2,
        unit="%",
        part="by the document's own list",
    )


@cause
def b16(e: Evidence) -> Tests:
    """Separate kernels win through fewer registers and better occupancy."""
    yield headline(
        "active warps, separate attention over that of",
        {
            v: over(e.counter, FLOAT4, v, "sm__warps_active.avg.pct_of_peak_sustained_active", hdim=2048)
            for v in (HYBRID_V1, V5)
        },
        least=1.03,
        part="that makes them faster",
    )
    yield effect(
        "separate float4 kernels at head dim 2048 over",
        {v: e.speedup(FLOAT4, v, hdim=2048) for v in (HYBRID_V1, V5)},
        least=1.03,
        part="that makes them faster",
    )
    yield headline(
        "by ptxas for the authors' card, registers over those of separate attention, or its blocks on an SM over those",
        {
            f"{what} {v}": over(e.resource, *pair, column, hdim=2048, target="sm_89")
            for v in (HYBRID_V1, V5)
            for what, pair, column in (
                ("registers", (v, FLOAT4), "registers"),
                ("blocks", (FLOAT4, v), "blocks_per_sm"),
            )
        },
        least=1.01,
        part="fewer registers, more blocks on an SM",
        kind="universal",
    )


@cause
def b17(e: Evidence) -> Tests:
    """Separate kernels win through better scheduling, perfect coalescing and no detour over tables in the attention."""
    yield from closes(e, HYBRID_V1, "sinusoidal_hybrid_v1_no_embedding", FLOAT4, (512, 2048))


@cause
def b18(e: Evidence) -> Tests:
    """The hybrid fails for sinusoidal embeddings and works for RoPE, because the first must cache all dims and the
    second only the rotated ones."""
    yield headline(
        "floats of Q that the RoPE hybrid keeps in shared memory, over the rotated dims",
        e.shared_bytes("rope_v7", "query", hdim=(128, 512, 2048))
        / 4
        / e.size("rope_v7", "rotary_dim", hdim=(128, 512, 2048)),
        equals=1,
    )
    yield wins(e, "rope_v7", SEPARATE, (128, 512, 2048), rotary="partial")
    yield effect(f"{HYBRID_V1} over {FLOAT4}", e.speedup(HYBRID_V1, FLOAT4, hdim=(512, 2048)), most=1.03)


@cause
def b19(e: Evidence) -> Tests:
    """Fusing sinusoidal embeddings succeeded because they depend on position and dim alone, so that nothing is computed
    twice; computing them costs about as much as loading them."""
    yield headline(
        "how often V5 computes each value of position and dim, a head",
        calls(e, "seq_k"),
        equals=1,
        unit="x",
        part="nothing is computed twice",
    )
    yield speed(
        e, V5, "sinusoidal_v2", DIMS, between=(1 / 1.1, 1.1), part="computing costs what loading does", kind="universal"
    )


@count
def b20(e: Evidence) -> Tests:
    """Separate kernels move 1 MB too much at head dim 2048 with 64 positions."""
    yield headline(
        "what a head's embedded Q and K take to be written and read again once",
        2
        * 32
        * e.count(FLOAT4, "global.write.sectors.q_embedded global.write.sectors.k_embedded", hdim=2048)
        / 1e6
        / 4,
        equals="N313",
        digits=1,
        unit="MB",
    )


@count
def b21(e: Evidence) -> Tests:
    """An element costs about 4 FLOP when computed and 2 memory transactions when loaded."""
    done = e.count(V5, "inst.fma inst.fp32 inst.mufu.sin inst.mufu.cos", hdim=2048)
    yield headline(
        "floating-point and special-function instructions of PTX that V5 adds to attention, for each element it embeds",
        (done - e.count(FLOAT4, "inst.fma inst.fp32", hdim=2048, launch=2)) / (e.size(V5, "flops", hdim=2048) / 2),
        between=(said("N383") - 1, said("N383") + 1),
        unit="an element",
        part="FLOP when computed",
    )
    yield headline(
        "table loads that V1 makes for each element that it embeds",
        (e.count("sinusoidal_v1", "inst.ld.global", hdim=2048) - e.count(SCALAR, "inst.ld.global", hdim=2048, launch=2))
        / e.size("sinusoidal_v1", "flops", hdim=2048)
        * 2,
        equals="N384",
        digits=1,
        unit="an element",
        part="transactions when loaded",
    )


@universal
def b22(e: Evidence) -> Tests:
    """Simple kernels can beat fused ones, and often do even with slightly more memory traffic; registers and the mix of
    instructions matter more than the number of FLOP."""
    yield headline(
        "separate float4 kernels over V5, where they do best",
        maximum(*e.speedup(FLOAT4, V5, hdim=DIMS).values()),
        least=1.03,
        unit="x",
        part="they can",
    )
    yield headline(
        "separate float4 kernels over",
        {v: e.speedup(FLOAT4, v, hdim=DIMS) for v in (HYBRID_V1, V5)},
        direction="faster",
        part="they often do",
        kind="number",
    )


@undecided
def b23(e: Evidence) -> Tests:
    """V1's problem, its table loads, was found by profiling it."""
    yield headline(
        "what a profile of V1 on their card showed",
        "no profile is kept, and the summary says that they should have profiled first; a profile of V1 on an RTX 4000 "
        "Ada from that time would decide it",
        least=0,
    )


@universal
def b24(e: Evidence) -> Tests:
    """Sinusoidal embeddings might not be worth fusing where separate kernels are optimised."""
    yield headline(
        "separate kernels with float4 loads over V5, where they do best",
        maximum(*e.speedup(FLOAT4, V5, hdim=DIMS).values()),
        least=0.97,
        unit="x",
    )
