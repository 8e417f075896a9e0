"""Claims of the documents on RoPE, and what decides it."""

import math
from typing import Any

from kernels import Problem

from ..evidence import Estimates, Evidence, maximum, said, stated
from ..studies import MAIN
from .claim import YES_OR_NO, Tests, cause, closes, count, effect, headline, loses, number, speed, universal, wins
from .measures import BUSY, FIXED, SEPARATE, busiest_memory_percent, over

DIMS = (128, 512, 2048)  # head dims that a time is printed for
DECODING = [
    Problem("rope", 1, heads, heads, queries, keys, 128, rotated)
    for heads, queries, keys, rotated in (
        (1, 1, 4096, 128), (8, 1, 4096, 32), (32, 1, 1024, 128), (32, 1, 4096, 128), (32, 1, 4096, 64),
        (16, 4, 2048, 128),
    )
]  # fmt: skip


def decoding(problem: Problem) -> str:
    """The shape of a problem of `DECODING` as the label of a place."""
    heads = f"{problem.heads} head{'s' * (problem.heads > 1)}"
    queries = f"{problem.seq_q} quer{'ies' if problem.seq_q > 1 else 'y'}"
    return f"{heads}, {queries}, {problem.seq_k:,} keys"


@universal
def c01(e: Evidence) -> Tests:
    """V1 is wrong from head dim 128 on because its reductions do not share their result. 12 % of the outputs are wrong,
    about twice too large; a store to shared memory corrects every head dim."""
    yield headline(
        "it is wrong without the store and right with it, all else equal",
        e.status("rope_v1a", "wrong", hdim=DIMS) * e.status("rope_v1b", "ok", hdim=DIMS),
        equals=1,
        unit=YES_OR_NO,
        part="the missing store",
    )
    yield headline(
        "outputs that are not a number, and so wrong at least, at head dim 128",
        100 * e.nan_share("rope_v1a", hdim=128),
        most="N096",
        unit="%",
        part="12 % wrong",
        kind="count",
    )


@cause
def c02(e: Evidence) -> Tests:
    """float4 loads make V1 9 to 19 % faster, because the kernel is bound by memory."""
    part = "memory holds it back"
    yield headline(
        "throughput of DRAM, L2 or L1, the highest, of the scalar kernel",
        busiest_memory_percent(e, "rope_v1b", hdim=DIMS),
        least=BUSY,
        unit="% of peak",
        part=part,
    )
    yield wins(e, "rope_v1c", "rope_v1b", DIMS, part)
    gain = tuple(1 + said(row) / 100 for row in ("N102", "N103"))
    yield speed(e, "rope_v1c", "rope_v1b", DIMS, published_range=gain, part="by 9 to 19 %", kind="number")


@number
def c03(e: Evidence) -> Tests:
    """V1 with tables and float4 loads takes 1.66, 2.65 and 3.27 times as long as separate kernels at head dim 128, 512
    and 2048."""
    yield speed(e, "rope_v1c", SEPARATE, DIMS, published=("N111", "N114", "N117"))


@cause
def c04(e: Evidence) -> Tests:
    """V1 is slower because it reads cosines and sines from global memory again for every pair of query and key."""
    yield from closes(e, "rope_v1c", "rope_v1c_no_tables", SEPARATE, DIMS, rotary="full")


@count
def c05(e: Evidence) -> Tests:
    """The fused kernel that took 0.053, 0.183 and 0.753 ms computed its angles, cached frequencies, and used float4
    loads and __sincosf."""
    yield headline(
        "the log's time of the kernel with cached frequencies (V4)",
        stated(DIMS, "N144", "N146", "N147"),
        equals=("N341", "N344", "N347"),
        unit="ms",
    )


@number
def c06(e: Evidence) -> Tests:
    """V2, which computes cosines and sines, is a large improvement, and at head dim 128 it beats separate kernels by
    1.2 times; use it up to 128."""
    yield speed(e, "rope_v2", SEPARATE, 128, rotary="full", published="N125")


@number
def c07(e: Evidence) -> Tests:
    """V3, four queries a block, is 22 to 27 % faster than V2."""
    yield speed(e, "rope_v3", "rope_v2", DIMS, published_range=(1 + said("N130") / 100, 1 / (1 - said("N131") / 100)))


@cause
def c08(e: Evidence) -> Tests:
    """V3 still loses because it rotates K 16 times as often as separate kernels, or does 8 times their rotations."""
    yield from closes(
        e, "rope_v3", "rope_v3_no_rotation", SEPARATE, (512, 2048), "rotations are what costs", rotary="full"
    )
    mine = e.count("rope_v3", "event.rotation", hdim=2048, rotary="full")
    q, k = (e.count(SEPARATE, "event.rotation", hdim=2048, rotary="full", launch=launch) for launch in (0, 1))
    yield headline(
        "rotations of V3 over those of separate kernels",
        {"of K": (mine - q) / k, "of Q and K": mine / (q + k)},
        between=((said("N140"), said("N140")), (said("N359") - 0.5, said("N359") + 0.5)),
        part="16 times those of K, 8 times all",
        kind="count",
    )


@universal
def c09(e: Evidence) -> Tests:
    """To share K's rotation among 64 queries a block would need 512 KB of shared memory."""
    yield headline(
        "bytes that a block asks for when it takes slices of dims, at head dim 2048",
        e.shared_bytes("rope_v3_64_queries", study="ablation", hdim=2048),
        least=49153,
        unit="B",
    )


@universal
def c10(e: Evidence) -> Tests:
    """Cached frequencies (V4) help at head dim 2048 alone, by 12.5 % over V3, and at 128 V4 takes 1.7 times as long;
    below 2048 shared memory and barriers cost more than powf did."""
    limits = ((0, 1.03), (0, 1.03), (1.03, math.inf))
    yield speed(e, "rope_v4", "rope_v3", DIMS, between=limits, part="faster at 2048 alone")
    yield speed(
        e,
        "rope_v4",
        "rope_v3",
        (128, 2048),
        published_range=((said("N145"),) * 2, (1 + said("N148") / 100, 1 / (1 - said("N148") / 100))),
        part="by 12.5 %, and 1.7 times as long",
        kind="number",
    )
    yield headline(
        "V4 over V2, which has one query a block as well, and powf in its loop in the place of barriers",
        e.speedup("rope_v4", "rope_v2", hdim=(128, 512)),
        most=0.97,
        part="barriers cost more than powf",
        kind="cause",
    )


@number
def c11(e: Evidence) -> Tests:
    """V4 still takes 2.5 times as long as separate kernels at head dim 2048."""
    yield speed(e, "rope_v4", SEPARATE, 2048, published="N360")


@cause
def c12(e: Evidence) -> Tests:
    """V5, key tiles in shared memory, takes 1.4, 3.8 and 8.5 times as long as separate kernels, because only 4 keys fit
    and 16 tiles have to be synchronised."""
    part = "that is tiles and barriers"
    yield speed(
        e,
        "rope_v5",
        SEPARATE,
        DIMS,
        rotary="full",
        published=("N150", "N152", "N154"),
        part="1.4, 3.8 and 8.5 times as long",
        kind="number",
    )
    yield headline(
        "share of the gap that stays when all threads work, tiles and barriers as before, at head dim 2048",
        1 - e.share_closed("rope_v5", "rope_v5_all_threads", SEPARATE, hdim=2048, rotary="full"),
        least=0.5,
        part=part,
    )
    yield loses(e, "rope_v5", SEPARATE, 2048, part, rotary="full")


@count
def c13(e: Evidence) -> Tests:
    """An element of V5's tile takes 2 bytes."""
    yield headline(
        "bytes of the tile, an element",
        e.shared_bytes("rope_v5", "keys", hdim=2048) / (e.shared_bytes("rope_v5", "scores", hdim=2048) / 4 * 2048),
        equals="N365",
        unit="B",
    )


@number
def c14(e: Evidence) -> Tests:
    """V6, tiles of dims, is 3.3 times as fast as V5, but takes 1.61, 2.33 and 2.52 times as long as separate
    kernels."""
    yield headline(
        "V6 over",
        {
            "rope_v5": e.speedup("rope_v6a", "rope_v5", hdim=(2048,), rotary="full"),
            SEPARATE: e.speedup("rope_v6a", SEPARATE, hdim=DIMS, rotary="full"),
        },
        published=("N173", "N168", "N170", "N172"),
    )


@cause
def c15(e: Evidence) -> Tests:
    """V6's limit is that it rotates K 64 times as often, 4096 instead of 64 times."""
    yield from closes(e, "rope_v6a", "rope_v6b_no_rotation", SEPARATE, DIMS, "that is what costs", rotary="full")
    q, k = (e.count(SEPARATE, "event.rotation", hdim=2048, rotary="full", launch=launch) for launch in (0, 1))
    yield headline(
        "rotations of K, V6 over separate kernels",
        (e.count("rope_v6a", "event.rotation", hdim=2048, rotary="full") - q) / k,
        equals="N176",
        part="64 times as often",
        kind="count",
    )


@cause
def c16(e: Evidence) -> Tests:
    """Rotating only some dims brings no significant gain, because rotating K again for every query, 524k operations
    instead of 16k, 32 times the work, still dominates."""
    whole, some = (
        e.time(version, hdim=DIMS, rotary=rotary) for version, rotary in (("rope_v6a", "full"), ("rope_v6b", "partial"))
    )
    yield headline(
        "V6 that rotates some dims over V6 that rotates all",
        (whole / some).measured_in("×"),
        most=1.1,
        part="it gains nothing",
        kind="universal",
    )
    part = "rotations are why"
    yield from closes(e, "rope_v6b", "rope_v6b_no_rotation", SEPARATE, DIMS, part, rotary="partial")
    yield headline(
        "all rotations, V6 over separate kernels, at head dim 2048",
        over(e.count, "rope_v6b", SEPARATE, "event.rotation", hdim=2048, rotary="partial"),
        between=(said("N191") - 0.5, said("N191") + 0.5),
        part="32 times the work",
        kind="count",
    )


@count
def c17(e: Evidence) -> Tests:
    """Fused RoPE does 32 times the work, 4,160 rotations instead of 128, and 64 times for K alone; 30 times the
    computation and memory traffic."""
    yield headline(
        "all rotations, V1 over separate kernels, at head dim 2048",
        over(e.count, "rope_v1c", SEPARATE, "event.rotation", hdim=2048, rotary="full"),
        between=(31.5, 32.5),
        part="rotations",
    )
    yield headline(
        "floating-point instructions of PTX or sectors read by a call, the larger, V1 over separate kernels",
        maximum(
            over(e.count, "rope_v1c", SEPARATE, "inst.fp32 inst.fma", hdim=DIMS, rotary="full"),
            over(e.count, "rope_v1c", SEPARATE, "global.read.sectors", hdim=DIMS, rotary="full"),
        ),
        least="N357",
        part="computation and traffic",
    )


@number
def c18(e: Evidence) -> Tests:
    """V7, the hybrid, beats separate kernels in all three configurations that are printed for it, by 1.66, 1.45 and
    1.40 times at head dim 128, 512 and 2048."""
    yield speed(e, "rope_v7", SEPARATE, DIMS, rotary="partial", published=("N199", "N201", "N203"))


@cause
def c19(e: Evidence) -> Tests:
    """V7 wins because it computes nothing twice, saves one launch and one buffer, and has better locality."""
    separate = e.time(SEPARATE, hdim=(512, 2048), rotary="partial")
    yield headline(
        "the most of the gain that a launch and a buffer can make: what both rotations of separate kernels cost over "
        "the same attention with nothing to embed",
        (separate - e.time(FIXED, hdim=(512, 2048)))
        / (separate - e.time("rope_v7", hdim=(512, 2048), rotary="partial")),
        least=0.5,
        unit="of the gain",
    )
    yield wins(e, "rope_v7", SEPARATE, DIMS, rotary="partial")


@universal
def c20(e: Evidence) -> Tests:
    """The hybrid works because Q belongs to the outer loop and K to the inner one; what is in the outer loop can be
    fused, what is in the inner one cannot."""
    yield speed(e, "rope_v7", SEPARATE, DIMS, rotary="partial", least=1.03, part="Q can be fused")
    yield headline(
        "V8, which fuses K as well, over the same attention with K rotated in front",
        e.speedup("rope_v8", "rope_hybrid_v8", hdim=DIMS, study="beyond", heads=4, rotary="partial"),
        most=0.97,
        part="K cannot",
    )


@cause
def c21(e: Evidence) -> Tests:
    """The RoPE hybrid wins because rotation is expensive, touches only 25 to 50 % of the dims, and is saved on K for
    every query."""
    yield headline(
        "rotations of separate kernels over those of V7",
        over(e.count, SEPARATE, "rope_v7", "event.rotation", hdim=DIMS, rotary="partial"),
        least=1.03,
    )


@number
def c22(e: Evidence) -> Tests:
    """From head dim 4096 on separate kernels are faster than V7."""
    yield speed(e, "rope_v7", SEPARATE, (4096, 8192), rotary="partial", published=("X085", "X086"))


@universal
def c23(e: Evidence) -> Tests:
    """Full fusion, V2 to V6, loses because it rotates K again for every query, which shared memory cannot overcome, as
    that needs 512 KB and there are 48."""
    without = {"rope_v3": "rope_v3_no_rotation", "rope_v6a": "rope_v6b_no_rotation"}
    asked: dict[str, Any] = {"hdim": DIMS, "rotary": "full"}
    yield headline(
        "share of the gap to separate kernels that closes without rotating K, of",
        {name: e.share_closed(name, bare, SEPARATE, **asked) for name, bare in without.items()},
        least=0.5,
        part="rotating K again is why",
        kind="cause",
    )
    yield effect(
        "over separate kernels",
        {name: e.speedup(name, SEPARATE, **asked) for name in without},
        most=0.97,
        part="rotating K again is why",
    )
    yield headline(
        "V8's portable core, fused fully in less than 48 KB, over separate kernels",
        e.speedup("rope_v8_portable", SEPARATE, hdim=DIMS, study="beyond", heads=4, rotary="full"),
        most=0.97,
        part="shared memory cannot overcome it",
    )


@cause
def c24(e: Evidence) -> Tests:
    """float4 loads do not fit the pairs of a rotation, so that RoPE vectorises less well."""
    yield headline(
        "V1, whose float4 loads take two pairs at a time, is wrong",
        e.status("rope_v1c", "wrong", hdim=DIMS),
        equals=1,
        unit=YES_OR_NO,
    )


@count
def c25(e: Evidence) -> Tests:
    """RoPE takes about 6 FLOP an element, 4 multiplications and 2 additions, where sinusoidal embeddings take about 4,
    one addition among them; the special-function unit is less effective, since both sine and cosine go to both
    elements."""
    yield headline(
        "FLOP of the rotate kernel's PTX for each element at head dim 2048",
        (
            e.count(SEPARATE, "inst.fp32", hdim=2048, launch=0, rotary="full")
            + 2 * e.count(SEPARATE, "inst.fma", hdim=2048, launch=0, rotary="full")
        )
        / (4 * 64 * 2048),
        equals=6,
        unit="FLOP",
    )


@universal
def c26(e: Evidence) -> Tests:
    """Only embeddings that do not depend on the values of Q and K should be fused."""
    yield headline(
        "V8, fused fully, over its core with embeddings apart",
        e.speedup("rope_v8", "rope_separate_v8", hdim=DIMS, study="beyond", heads=4, rotary="full"),
        most=1.03,
    )


@universal
def c27(e: Evidence) -> Tests:
    """Both separate and fused RoPE are bound by memory."""
    for part, versions in {"separate": (SEPARATE,), "fused": ("rope_v1c", "rope_v2")}.items():
        yield headline(
            "throughput of DRAM, L2 or L1, the highest, of its attention",
            {v: busiest_memory_percent(e, v, hdim=(512, 2048), rotary="full") for v in versions},
            least=BUSY,
            unit="% of peak",
            part=part,
        )


@universal
def c28(e: Evidence) -> Tests:
    """For decoding, 1 to 4 queries, it is necessary to rotate only some of the dims."""
    all_dims = [problem for problem in DECODING if problem.rotary_dim == problem.hdim]
    gains = e.speedup("rope_v8", "rope_separate_v8", "map", problem=all_dims)
    yield headline(
        "V8, fused fully, over separate embeddings on its core, all dims rotated",
        {decoding(problem): Estimates({problem.hdim: one}) for problem, one in gains.items()},
        most=1.03,
        unit="x",
    )


@number
def c31(e: Evidence) -> Tests:
    """For decoding, 1 to 4 queries and thousands of keys, the hybrid, which fuses Q alone, works better: it beats
    separate kernels, and by more than at the documents' main shape."""
    gains = e.speedup("rope_hybrid_v8", "rope_separate_v8", "map", problem=[*DECODING, MAIN])
    named = {problem: f"{decoding(problem)}, {problem.rotary_dim} dims rotated" for problem in DECODING}
    core = "Q alone fused over separate embeddings, both on V8's core"
    yield headline(
        core,
        {words: Estimates({problem.hdim: gains[problem]}) for problem, words in named.items()},
        direction="faster",
        part="beats separate kernels",
    )
    yield headline(
        f"{core}: in decode over the main shape",
        {words: gains[problem] / gains[MAIN] for problem, words in named.items()},
        direction="faster",
        unit="x",
        part="by more than at the main shape",
    )


@count
def c29(e: Evidence) -> Tests:
    """LLaMA rotates 64 of 128 dims."""
    yield headline(
        "dims that LLaMA's published code rotates, 4096 over 32 heads (precompute_freqs_cis(dim // n_heads))",
        4096 / 32,
        equals=64,
        unit="dims",
    )


@count
def c30(e: Evidence) -> Tests:
    """V5 has 40 KB, or 10,000 floats, of shared memory, where the same log has 48 KB."""
    yield headline("floats that the log's own limit of 48 KB holds", 48 * 1024 / 4, equals=10000, unit="floats")
