"""Where the documents contradict each other, their own numbers, or their card."""

from __future__ import annotations

from typing import Any

from ..evidence import Comparison, Evidence, every, said, stated
from .measures import DRAM, FLOAT4, L1, embedded, forgotten_rope, fp32_percent, memory_percent
from .question import Items, item, question

CHAPTER = "contradictions"
BOTH, SINUSOIDAL, ROPE = (512, 2048), (512, 2048, 4096), (128, 512, 2048)
LOG, WIDE = (*SINUSOIDAL, 8192), (*ROPE, 4096, 8192)
HALF: dict[str, Any] = {"hdim": 64, "seq_q": 512}
ABLATION: dict[str, Any] = {"study": "ablation", **HALF}


@question(
    CHAPTER,
    "baseline",
    asks="Is fused sinusoidal attention faster than separate kernels?",
    about=("B-07", "B-08", "B-09"),
    answer="It depends on the baseline. It is faster than kernels that load one float at a time, and slower than "
    "kernels that load four.",
    because="The write-up compares V5 with the first, the later analysis with the second. On the {card} V5 runs at "
    "{scalar} and {float4} their speed. Loading four floats, with nothing fused, gives {loads} by itself; "
    "the documents' own times give {loads:printed}.",
)
def baseline(e: Evidence) -> tuple[Items, Comparison]:
    scalar = item(
        "V5 over separate kernels that load one float",
        e.speedup("sinusoidal_v5", "sinusoidal_separate_scalar", hdim=SINUSOIDAL),
        printed=stated(SINUSOIDAL, "N332", "N335", "N338"),
    )
    float4 = item(
        "V5 over separate kernels that load four",
        e.speedup("sinusoidal_v5", FLOAT4, hdim=SINUSOIDAL),
        printed=stated(SINUSOIDAL, "N077", "N024", "N079") / stated(SINUSOIDAL, "N066", "N023", "N068"),
    )
    loads = item(
        "separate kernels, four floats a load over one",
        e.speedup(FLOAT4, "sinusoidal_separate_scalar", hdim=SINUSOIDAL),
        printed=stated(SINUSOIDAL, "N330", "N333", "N336") / stated(SINUSOIDAL, "N077", "N078", "N079"),
    )
    items = {"scalar": scalar, "float4": float4, "loads": loads}
    return items, every(scalar > 1.03, float4 < 1, loads > 1.03)


@question(
    CHAPTER,
    "everywhere",
    asks="Does the RoPE hybrid V7 beat separate kernels?",
    about=("C-18", "C-22"),
    answer="It depends on the load, and not by a threshold. With as many blocks per SM as on the authors' card it "
    "wins up to head dim 2048. At the published shapes it loses on the {card}, and with more heads than "
    "those it loses again.",
    because="With as many blocks per SM as on the authors' card V7 runs at {loaded[128]}, {loaded[512]} and "
    "{loaded[2048]} the speed of separate kernels on the {card}, and at {loaded[4096]} and {loaded[8192]} "
    "above. At the published shapes it runs at {device}, and at {held} with 4 heads of 64 queries "
    "throughout. Timed there as the log does, launches and host waits included, it runs at {launched[128]}, "
    "{launched[512]}, {launched[2048]}, {launched[4096]} and {launched[8192]}. The log says that it wins "
    "everywhere, the analysis that it loses at 4096 and above. There the authors' own run gives "
    "{launched[4096]:printed} and {launched[8192]:printed}.",
)
def everywhere(e: Evidence) -> tuple[Items, Comparison]:
    device = item(
        "V7 over separate kernels",
        e.speedup("rope_v7", "rope_separate", hdim=WIDE, rotary="partial"),
        printed=stated(WIDE, "N199", "N201", "N203", "X085", "X086"),
    )
    held = item(
        "the same with 4 heads of 64 queries throughout",
        e.speedup("rope_v7", "rope_separate", study="controlled", hdim=WIDE, rotary="partial"),
    )
    launched = item(
        "the same with launches and host waits timed",
        e.speedup("rope_v7", "rope_separate", hdim=WIDE, rotary="partial", timer="launched"),
        printed=stated(WIDE, "N199", "N201", "N203", "X085", "X086"),
    )
    loaded = item(
        "V7 over separate kernels, with as many blocks per SM as on the authors' card",
        e.speedup("rope_v7", "rope_separate", study="matched", hdim=WIDE, rotary="partial"),
    )
    items = {"device": device, "held": held, "launched": launched, "loaded": loaded}
    return items, every(
        loaded.at(*ROPE) > 1.03,
        loaded.at(4096, 8192) < 1,
        device < 1,
        held < 1,
        launched.at(128) > 1.03,
        launched.at(4096, 8192) < 1,
    )


@question(
    CHAPTER,
    "outer_loop",
    asks="Do hybrids win because Q is in the outer loop?",
    about=("B-11", "B-18", "C-20"),
    answer="No. Both hybrids keep Q in the outer loop; at the published shapes on the {card} the sinusoidal one "
    "wins and the RoPE one loses.",
    because="Both embed K in a kernel of its own and Q inside attention. The sinusoidal hybrid runs at {sinusoidal} "
    "the speed of separate kernels, the RoPE hybrid at {rope}. The documents print the opposite, "
    "{sinusoidal:printed} and {rope:printed}. What decides there is whether the loop over the head dim is "
    "unrolled, so that several loads are in flight. The sinusoidal loop has an unroll hint; a bounds test "
    "keeps the RoPE loop from being unrolled. In CUDA C++ the sinusoidal hybrid without the hint runs at "
    "{rolled}, the RoPE hybrid without the test at {no_break}. With K rotated inside and Q before, RoPE "
    "runs at {fused_k}.",
)
def outer_loop(e: Evidence) -> tuple[Items, Comparison]:
    sinusoidal = item(
        "sinusoidal hybrid V1 over separate kernels",
        e.speedup("sinusoidal_hybrid_v1", FLOAT4, hdim=BOTH),
        printed=stated(BOTH, "N077", "N078") / stated(BOTH, "N069", "N070"),
    )
    rope = item(
        "RoPE V7 over separate kernels",
        e.speedup("rope_v7", "rope_separate", hdim=BOTH, rotary="partial"),
        printed=stated(BOTH, "N201", "N203"),
    )
    fused_k = item(
        "RoPE with K rotated inside and Q before, over separate kernels",
        e.speedup("rope_v7_fused_k", "rope_separate", study="ablation", hdim=BOTH, rotary="partial"),
    )
    rolled = item(
        "sinusoidal hybrid V1 over separate kernels, both in CUDA C++, its loop not unrolled",
        e.speedup(
            "control_sinusoidal_hybrid_v1_unroll_1", "control_sinusoidal_separate_float4", study="ablation", hdim=BOTH
        ),
    )
    no_break = item(
        "RoPE V7 over separate kernels, both in CUDA C++, without the bounds test in its loop",
        e.speedup("control_rope_v7_no_break", "control_rope_separate", study="ablation", hdim=BOTH, rotary="partial"),
    )
    items = {"sinusoidal": sinusoidal, "rope": rope, "fused_k": fused_k, "rolled": rolled, "no_break": no_break}
    return items, every(sinusoidal > 1.03, rope < 1, fused_k < 1, rolled < 1, no_break > 1.03)


@question(
    CHAPTER,
    "only_independent",
    asks="Should only embeddings that do not depend on the values be fused?",
    about=("B-08", "C-26"),
    answer="That is not what separates them. Of the documents' fused kernels, sinusoidal V5 and RoPE V4 both lose "
    "to separate kernels that load four floats at a time.",
    because="On the {card} sinusoidal V5 runs at {sinusoidal} the speed of its separate kernels, RoPE V4 at {rope}. "
    "RoPE can be fused all the same. This book's own <a href='v8.html'>V8</a>, with all dims rotated too, "
    "runs at {v8[512]} and {v8[2048]} the speed of separate kernels on its core.",
)
def only_independent(e: Evidence) -> tuple[Items, Comparison]:
    sinusoidal = item(
        "sinusoidal V5, independent of the values, over separate kernels", e.speedup("sinusoidal_v5", FLOAT4, hdim=BOTH)
    )
    rope = item(
        "RoPE V4, dependent on them, over separate kernels",
        e.speedup("rope_v4", "rope_separate", hdim=BOTH, rotary="full"),
    )
    v8 = item(
        "RoPE V8, dependent on them too, over separate kernels on its core, 4 heads",
        e.speedup("rope_v8", "rope_separate_v8", study="beyond", hdim=BOTH, heads=4, rotary="full"),
    )
    items = {"sinusoidal": sinusoidal, "rope": rope, "v8": v8}
    return items, every(sinusoidal < 1, rope < 1, v8 > 1.03)


@question(
    CHAPTER,
    "passed",
    asks="Did all tests pass?",
    about=("A-06", "D-01"),
    answer="No. Most of what the recommended kernel returns is not a number.",
    because="On the {card} {not_numbers} of the output of the online kernel is NaN, and {fixed} with its block "
    "reductions corrected. The check counts an element as bad when |a − b| exceeds a tolerance. A "
    "comparison with NaN is never true, so NaN passes. Even so, the run whose times are printed failed the "
    "check, with {bad[512]} bad elements at head dim 512 and {bad[2048]} at 2048.",
)
def passed(e: Evidence) -> tuple[Items, Comparison]:
    not_numbers = item(
        "outputs that are not a number, online kernel as published",
        100 * e.nan_share("attention_online", hdim=LOG),
        "%",
    )
    fixed = item("the same with its reductions corrected", 100 * e.nan_share("attention_online_fixed", hdim=LOG), "%")
    bad = item("elements that the log counts as bad", stated(BOTH, "X021", "X022"), "")
    items = {"not_numbers": not_numbers, "fixed": fixed, "bad": bad}
    return items, every(not_numbers > 50, fixed < 1, bad > 0)


@question(
    CHAPTER,
    "fastest",
    asks="Which attention kernel is the fastest?",
    about=("A-07", "A-14"),
    answer="It depends on the load. By the log's times, and up to head dim 2048 at the load of the authors' card, "
    "it is two passes with float4 loads. At the published shapes on the {card} it is the online kernel, "
    "whose output as published is wrong.",
    because="The summary calls the online kernel its best and reports the rates of two passes. Those run at {log} "
    "the speed of the online kernel by the log's times, and at {here} on the {card}. As published "
    "{not_numbers} of the online kernel's output is NaN. Its corrected form is <a "
    "href='../versions/attention_online_fixed.html'>attention_online_fixed</a>, and which of the two is "
    "faster depends on the load. Two passes run at {fixed} its speed at the published shapes, and at "
    "{loaded} with as many blocks per SM as on the authors' card.",
)
def fastest(e: Evidence) -> tuple[Items, Comparison]:
    log = item(
        "two passes with float4 loads over the online kernel, by the log's times",
        stated(LOG, "N217", "N220", "N223", "N226") / stated(LOG, "X013", "X014", "X015", "X016"),
    )
    here = item("the same, here", e.speedup("attention_two_pass_float4", "attention_online", hdim=LOG))
    not_numbers = item(
        "outputs of the online kernel that are not a number", 100 * e.nan_share("attention_online", hdim=LOG), "%"
    )
    fixed = item(
        "two passes with float4 loads over the corrected online kernel, here",
        e.speedup("attention_two_pass_float4", "attention_online_fixed", hdim=LOG),
    )
    loaded = item(
        "the same, with as many blocks per SM as on the authors' card",
        e.speedup("attention_two_pass_float4", "attention_online_fixed", study="matched", hdim=BOTH),
    )
    items = {"log": log, "here": here, "not_numbers": not_numbers, "fixed": fixed, "loaded": loaded}
    return items, every(log > 1, loaded > 1.03, here < 1, fixed < 1, not_numbers > 0)


@question(
    CHAPTER,
    "tolerance",
    asks="Would the check notice a missing rotation?",
    about=("D-01",),
    answer="Not at head dims 512 and 2048. The programs allow an error of {used}, not the {stated} that the write- "
    "up states.",
    because="On the source's inputs attention is nearly an average of V, so rotation hardly matters. Without it the "
    "result moves by {forgotten[128]} at head dim 128, {forgotten[512]} at 512 and {forgotten[2048]} at "
    "2048. On inputs whose scores are spread it moves by {sharp}; this book checks both. V7 itself is off "
    "by {right} on the {card}.",
)
def tolerance(e: Evidence) -> tuple[Items, Comparison]:
    stated = item("tolerance that the write-up states", said("N395"), "", hdim=128)
    used = item("tolerance that the programs compare with", 0.05, "", hdim=128)
    forgotten = item("error of V7 if it rotated nothing", forgotten_rope(ROPE, "uniform"), "")
    sharp = item("the same on inputs whose scores are spread", forgotten_rope(ROPE, "sharp"), "")
    right = item("error of V7", e.error("rope_v7", hdim=ROPE), "")
    items = {"stated": stated, "used": used, "forgotten": forgotten, "sharp": sharp, "right": right}
    return items, every(forgotten.at(*BOTH) < used, forgotten.at(128) > used, sharp > used, right < stated)


@question(
    CHAPTER,
    "ceiling",
    asks="Is attention bound by memory or by compute?",
    about=("A-09", "E-12"),
    answer="By neither. It fills neither the bandwidth nor the units that do the arithmetic, and waits.",
    because="On the {card} the corrected online kernel moves {memory} of what DRAM or L2 can, and does {fp32} of "
    "what the FP32 units can. The path to L1 and shared memory is a unit of its own, apart from DRAM and "
    "L2; the kernel uses {l1} of it. Phase 4 of half precision moves {memory4} and does {fp32_4}. What they "
    "wait for is on the page on <a href='causes.html#bound'>causes</a>.",
)
def ceiling(e: Evidence) -> tuple[Items, Comparison]:
    memory = item("attention: of what DRAM or L2 can move", memory_percent(e, "attention_online_fixed", hdim=LOG), "%")
    fp32 = item("attention: of what the FP32 units can do", fp32_percent(e, "attention_online_fixed", hdim=LOG), "%")
    memory4 = item("Phase 4: of what DRAM or L2 can move", memory_percent(e, "fp16_phase4", **HALF), "%")
    fp32_4 = item("Phase 4: of what the FP32 units can do", fp32_percent(e, "fp16_phase4", **HALF), "%")
    l1 = item(
        "attention: of what the path to L1 and shared memory can",
        e.counter("attention_online_fixed", L1, hdim=LOG),
        "%",
    )
    items = {"memory": memory, "fp32": fp32, "memory4": memory4, "fp32_4": fp32_4, "l1": l1}
    return items, every(memory < 60, fp32 < 60, l1 < 60, memory4 < 60, fp32_4 < 60)


@question(
    CHAPTER,
    "cliff",
    asks="Do K and V overflow the L2 at head dim 8192?",
    about=("A-11", "A-12"),
    answer="No. They take {kv}; the chip of the documents' card has {ada} of L2, the {card} {l2}.",
    because="With warm caches a call reads {dram} of the bytes of Q, K and V from DRAM. Why the rate falls at 8192 "
    "is on the page on <a href='causes.html#cliff'>causes</a>.",
)
def cliff(e: Evidence) -> tuple[Items, Comparison]:
    kv = item(
        "K and V of the one head",
        2
        * 4
        * e.size("attention_online_fixed", "seq_k", hdim=8192)
        * e.size("attention_online_fixed", "hdim", hdim=8192)
        / 1024
        / 1024,
        "MiB",
    )
    ada = item("L2 of the RTX 4000 Ada's chip, whole", 48, "MiB", hdim=8192)
    l2 = item("L2 of this GPU", e.identity("l2_bytes") / 1024 / 1024, "MiB", hdim=8192)
    dram = item(
        "read from DRAM in a call, of the bytes of Q, K and V, caches warm",
        100
        * e.counter("attention_online_fixed", "dram__bytes_read.sum", hdim=8192)
        / (
            3
            * 4
            * e.size("attention_online_fixed", "seq_k", hdim=8192)
            * e.size("attention_online_fixed", "hdim", hdim=8192)
        ),
        "%",
    )
    items = {"kv": kv, "ada": ada, "l2": l2, "dram": dram}
    return items, every(kv < ada, kv < l2, dram < 10)


@question(
    CHAPTER,
    "shared_query",
    asks="Does keeping Q in shared memory cost time?",
    about=("B-12", "C-18", "C-19"),
    answer="No. It gains a little.",
    because="On the {card} attention that copies its query to shared memory runs at {alone} the speed of attention "
    "that reads it from global memory; V7 runs at {rope} the speed of a V7 with its query in global memory. "
    "The analysis blames shared memory for the hybrid's loss, but a warp of the sinusoidal hybrid waits for "
    "it {waits} of its time.",
)
def shared_query(e: Evidence) -> tuple[Items, Comparison]:
    alone = item(
        "attention with its query in shared memory, over global memory",
        e.speedup("attention_online_shared_query", "attention_online_fixed", study="ablation", hdim=BOTH),
    )
    rope = item(
        "V7 over V7 with its query in global memory",
        e.speedup("rope_v7", "rope_v7_global_query", study="ablation", hdim=BOTH, rotary="partial"),
    )
    waits = item(
        "share of its time that a warp of the sinusoidal hybrid waits for shared memory",
        100 * e.stalled("sinusoidal_hybrid_v1", "mio_throttle short_scoreboard", hdim=BOTH),
        "%",
    )
    items = {"alone": alone, "rope": rope, "waits": waits}
    return items, every(alone > 1, alone < 1.15, rope > 1, rope < 1.15, waits < 10)


@question(
    CHAPTER,
    "twice",
    asks="Does fused sinusoidal attention compute anything twice?",
    about=("B-10", "B-19"),
    answer="Yes. V5 computes the embedding of each element {times}, and is still faster than loading it.",
    because="The write-up says that nothing is redundant; the analysis says {times:printed}. On the {card} V5 runs "
    "at {loading} the speed of V2, which loads the embeddings from tables.",
)
def twice(e: Evidence) -> tuple[Items, Comparison]:
    times = item(
        "embeddings that V5 computes for each element of Q and K",
        embedded(e, "sinusoidal_v5", hdim=SINUSOIDAL),
        "times",
        printed=said("N025"),
    )
    loading = item(
        "V5, which computes, over V2, which loads", e.speedup("sinusoidal_v5", "sinusoidal_v2", hdim=SINUSOIDAL)
    )
    items = {"times": times, "loading": loading}
    return items, every(times > 1, loading > 1.03)


@question(
    CHAPTER,
    "loads_or_rotations",
    asks="Does RoPE V1 lose by its table loads or by its rotations?",
    about=("C-04", "C-17"),
    answer="By its table loads. Without them, every rotation kept, it is as fast as separate kernels or faster.",
    because="On the {card} taking the loads away closes {loads} of V1's gap to separate kernels; above 100 % it is "
    "then faster than they are. V1 rotates {rotations} as often as they do, but that only about doubles the "
    "floating-point instructions ({arithmetic}). V2 computes the angles instead of loading them. There "
    "rotating K does cost time. Without it {unrotated} of the gap closes.",
)
def loads_or_rotations(e: Evidence) -> tuple[Items, Comparison]:
    rotations = item(
        "rotations of V1 over those of separate kernels",
        e.count("rope_v1c", "event.rotation", hdim=ROPE, rotary="full")
        / e.count("rope_separate", "event.rotation", hdim=ROPE, rotary="full"),
    )
    arithmetic = item(
        "floating-point instructions of V1 over those of separate kernels",
        (
            e.count("rope_v1c", "inst.fp32", hdim=ROPE, rotary="full")
            + e.count("rope_v1c", "inst.fma", hdim=ROPE, rotary="full")
        )
        / (
            e.count("rope_separate", "inst.fp32", hdim=ROPE, rotary="full")
            + e.count("rope_separate", "inst.fma", hdim=ROPE, rotary="full")
        ),
    )
    loads = item(
        "share of V1's gap that closes without its table loads, rotations kept",
        100
        * e.share_closed("rope_v1c", "rope_v1c_no_tables", "rope_separate", study="ablation", hdim=ROPE, rotary="full"),
        "%",
    )
    unrotated = item(
        "share of V2's gap that closes without rotating K",
        100
        * e.share_closed("rope_v2", "rope_v2_no_rotation", "rope_separate", study="ablation", hdim=ROPE, rotary="full"),
        "%",
    )
    items = {"rotations": rotations, "arithmetic": arithmetic, "loads": loads, "unrotated": unrotated}
    return items, every(loads > 100, rotations > 30, arithmetic > 1.6, arithmetic < 2.2, unrotated > 50, unrotated < 75)


@question(
    CHAPTER,
    "sixth",
    asks="Is RoPE V6 limited by rotating K again?",
    about=("C-15", "C-16"),
    answer="Only in part. Threads without a key cost it more.",
    because="With partial rotation V6 makes {fewer[128]} of the rotations at head dim 128 and {fewer[2048]} at "
    "2048, but on the {card} it runs at {partial[128]} and {partial[2048]} the speed that it has with full "
    "rotation. Not rotating K at all closes {gap} of its gap to separate kernels with full rotation, and "
    "{gap_partial} with partial rotation. With partial rotation and all threads at the scores, {threads} "
    "closes.",
)
def sixth(e: Evidence) -> tuple[Items, Comparison]:
    fewer = item(
        "rotations with partial rotation, of those with full",
        100
        * e.count("rope_v6b", "event.rotation", hdim=ROPE, rotary="partial")
        / e.count("rope_v6a", "event.rotation", hdim=ROPE, rotary="full"),
        "%",
    )
    partial = item(
        "speed with partial rotation over that with full",
        e.time("rope_v6a", hdim=ROPE, rotary="full") / e.time("rope_v6b", hdim=ROPE, rotary="partial"),
    )
    gap = item(
        "share of V6's gap that closes without rotating K",
        100
        * e.share_closed(
            "rope_v6a", "rope_v6b_no_rotation", "rope_separate", study="ablation", hdim=ROPE, rotary="full"
        ),
        "%",
    )
    gap_partial = item(
        "the same with partial rotation",
        100
        * e.share_closed(
            "rope_v6b", "rope_v6b_no_rotation", "rope_separate", study="ablation", hdim=ROPE, rotary="partial"
        ),
        "%",
    )
    threads = item(
        "share of V6's gap that closes with all threads at the scores, partial rotation",
        100
        * e.share_closed(
            "rope_v6b", "rope_v6b_all_threads", "rope_separate", study="ablation", hdim=ROPE, rotary="partial"
        ),
        "%",
    )
    items = {"fewer": fewer, "partial": partial, "gap": gap, "gap_partial": gap_partial, "threads": threads}
    return items, every(fewer < 60, partial < 1.15, gap > 25, gap < 50, threads > gap_partial)


@question(
    CHAPTER,
    "small_heads",
    asks="Is the log's full RoPE fusion worth it at head dim 128?",
    about=("C-06", "C-23"),
    answer="Not on the GPU alone; where launches and waits count, yes.",
    because="On the {card} V2 runs at {device} the speed of separate kernels, built with fast-math at {fast}. With "
    "launches and host waits timed the latter runs at {launched}. The log gets {device:printed} by its "
    "slowest time of separate kernels; by the time that it took of them beside V1 the ratio is {log}.",
)
def small_heads(e: Evidence) -> tuple[Items, Comparison]:
    device = item(
        "V2 over separate kernels", e.speedup("rope_v2", "rope_separate", hdim=128, rotary="full"), printed=said("N125")
    )
    fast = item("V2 with fast-math, the same", e.speedup("rope_v2_fast_math", "rope_separate", hdim=128, rotary="full"))
    launched = item(
        "V2 with fast-math, launches and host waits timed",
        e.speedup("rope_v2_fast_math", "rope_separate", hdim=128, rotary="full", timer="launched"),
    )
    log = item("V2, over the log's time of separate kernels beside V1", said("N110") / said("N119"), hdim=128)
    items = {"device": device, "fast": fast, "launched": launched, "log": log}
    return items, every(device < 1, fast < 1, launched > 1.03, log < 1)


@question(
    CHAPTER,
    "tensor_cores",
    asks="Do tensor cores help?",
    about=("A-17", "E-14"),
    answer="They help Phase 4 of half precision, and not the fp32 kernel at head dims 512 and 2048.",
    because="With both products on tensor cores Phase 4 runs at {half} the speed on the {card}, where the report "
    "expects {half:printed}. Attention in two passes runs at {single} there.",
)
def tensor_cores(e: Evidence) -> tuple[Items, Comparison]:
    half = item(
        "Phase 4 with both products on tensor cores, over Phase 4",
        e.speedup("fp16_phase4_mma", "fp16_phase4", **ABLATION),
        printed=said("N470") / said("N469"),
    )
    single = item(
        "two passes with both products on tensor cores, over two passes",
        e.speedup("attention_two_pass_mma", "attention_two_pass_float4", study="ablation", hdim=BOTH),
    )
    items = {"half": half, "single": single}
    return items, every(half > 1.1, single < 1)


@question(
    CHAPTER,
    "spills",
    asks="Did Phase 6 spill registers, and did shared memory fix it?",
    about=("E-03", "E-04"),
    answer="Nothing spills, and shared memory fixes little. It takes the arrays out of each thread's own memory, "
    "which closes only {gap} of the gap to Phase 4.",
    because="Iteration 1 spills {spill} per thread. Its arrays are indexed by a variable, so {stack} of them lie in "
    "memory however many registers there are. Iteration 2 keeps them in shared memory, and {left} in a "
    "thread's own, which is all that the test of <a href='claims.html#E-04'>E-04</a> asks. On the {card} "
    "iteration 2 runs at {second} the speed of iteration 1; the report's own times give {second:printed}, "
    "and {gap:printed} of the gap.",
)
def spills(e: Evidence) -> tuple[Items, Comparison]:
    spill = item("what iteration 1 spills per thread", e.resource("fp16_phase6_iter1", "spill_bytes", **HALF), "B")
    stack = item(
        "arrays that it keeps in each thread's own memory", e.resource("fp16_phase6_iter1", "stack_bytes", **HALF), "B"
    )
    left = item("the same of iteration 2", e.resource("fp16_phase6_iter2", "stack_bytes", **HALF), "B")
    second = item(
        "iteration 2 over iteration 1",
        e.speedup("fp16_phase6_iter2", "fp16_phase6_iter1", **HALF),
        printed=said("N419") / said("N422"),
    )
    gap = item(
        "share of the gap to Phase 4 that closes with iteration 2",
        100
        * (e.time("fp16_phase6_iter1", **HALF) - e.time("fp16_phase6_iter2", **HALF))
        / (e.time("fp16_phase6_iter1", **HALF) - e.time("fp16_phase4", **HALF)),
        "%",
        printed=100 * (said("N419") - said("N422")) / (said("N419") - said("N446")),
    )
    items = {"spill": spill, "stack": stack, "left": left, "second": second, "gap": gap}
    return items, every(spill < 1, stack > 0, left < 129, second > 1.03, second < 1.25, gap > 0, gap < 25)


@question(
    CHAPTER,
    "threads",
    asks="What should be fixed first in Phase 6, its threads or its loads?",
    about=("E-05", "E-18"),
    answer="Give each row a warp, or pad the rows. Either makes it several times as fast; wide loads gain nothing.",
    because="The report blames idle threads, and then puts threads last, after wide loads. On the {card} a warp for "
    "each row makes Phase 6 run at {mapping} its speed, and removes some of the bank conflicts. Padded rows "
    "in shared memory, which the report lists nowhere, give {padded}, with the threads as they are. Leaving "
    "the idle threads out changes nothing ({fewer}). Nor do wide loads. Phase 4 runs with them at {vector} "
    "the speed of loads of one half.",
)
def threads(e: Evidence) -> tuple[Items, Comparison]:
    padded = item(
        "Phase 6 with padded rows in shared memory, over Phase 6",
        e.speedup("fp16_phase6_iter2_padded", "fp16_phase6_iter2", **ABLATION),
    )
    mapping = item(
        "Phase 6 with a warp a row, over Phase 6",
        e.speedup("fp16_phase6_iter2_warp_per_row", "fp16_phase6_iter2", **ABLATION),
    )
    fewer = item(
        "Phase 6 with 32 threads a block, over Phase 6",
        e.speedup("fp16_phase6_iter2_32_threads", "fp16_phase6_iter2", **ABLATION),
    )
    vector = item(
        "Phase 4 over Phase 4 with loads of one half", e.speedup("fp16_phase4", "fp16_phase4_scalar_loads", **ABLATION)
    )
    items = {"padded": padded, "mapping": mapping, "fewer": fewer, "vector": vector}
    return items, every(mapping > padded, padded > 2, vector > 0.97, vector < 1.03, fewer > 0.97, fewer < 1.03)


@question(
    CHAPTER,
    "memory_share",
    asks="What share of Phase 4's time is memory?",
    about=("E-11", "E-12"),
    answer="Less than either list of the report says. A warp waits for memory {memory} of its time, and for other "
    "warps at barriers {barrier}.",
    because="The report gives memory {first} in one list and {second} in the other, and barriers {barrier:printed} "
    "in the second. On the {card} leaving out Q·K saves {scores} of the time, leaving out the product with "
    "V {product}; the report has {scores:printed} and {product:printed}.",
)
def memory_share(e: Evidence) -> tuple[Items, Comparison]:
    first = item("memory in the report's first list", 100 * said("N450") / said("N446"), "%", hdim=64)
    second = item("memory in its second list", said("N455"), "%", hdim=64)
    memory = item(
        "share of its time that a warp waits for global or local memory",
        100 * e.stalled("fp16_phase4", "long_scoreboard lg_throttle", **HALF),
        "%",
    )
    barrier = item(
        "share of its time that a warp waits at barriers",
        100 * e.stalled("fp16_phase4", "barrier", **HALF),
        "%",
        printed=said("N454"),
    )
    scores = item(
        "share of the time that leaving out Q·K saves",
        100
        * (e.time("fp16_phase4", **ABLATION) - e.time("fp16_phase4_no_scores", **ABLATION))
        / e.time("fp16_phase4", **ABLATION),
        "%",
        printed=100 * said("N447") / said("N446"),
    )
    product = item(
        "share that leaving out the product with V saves",
        100
        * (e.time("fp16_phase4", **ABLATION) - e.time("fp16_phase4_no_values", **ABLATION))
        / e.time("fp16_phase4", **ABLATION),
        "%",
        printed=100 * said("N449") / said("N446"),
    )
    items = {
        "first": first,
        "second": second,
        "memory": memory,
        "barrier": barrier,
        "scores": scores,
        "product": product,
    }
    return items, every(memory < second, second < first, barrier > first, scores > product)


@question(
    CHAPTER,
    "ceilings",
    asks="How much of its card's bandwidth did the kernel use?",
    about=("A-10", "A-12"),
    answer="About a quarter by its own rate, not {summary:printed}. The summary divides by the peak of another card.",
    because="It divides {rate} by {a100}, which an A100 has. By the write-up all was measured on an RTX 4000 Ada; "
    "of its peak the rate is {ada}, and {writeup} by the write-up's rate. Both rates count each key once "
    "for every query, but caches serve most of these reads. On the {card} DRAM moves {dram} of what it can.",
)
def ceilings(e: Evidence) -> tuple[Items, Comparison]:
    rate = item("rate that the summary states", said("N235"), "GB/s", hdim=8192)
    a100 = item("peak that it divides by", said("N236"), "GB/s", hdim=8192)
    summary = item("share that this gives", 100 * said("N235") / said("N236"), "%", printed=said("N237"), hdim=8192)
    ada = item("share of the RTX 4000 Ada's peak", 100 * said("N235") / said("N296"), "%", hdim=8192)
    writeup = item(
        "share by the write-up's own rate", 100 * said("N310") / said("N311"), "%", printed=said("N312"), hdim=8192
    )
    dram = item("DRAM throughput here, caches warm", e.counter("attention_two_pass_float4", DRAM, hdim=8192), "%")
    items = {"rate": rate, "a100": a100, "summary": summary, "ada": ada, "writeup": writeup, "dram": dram}
    return items, every(ada > 20, writeup > 20, summary < 5, dram < 1)


@question(
    CHAPTER,
    "rates",
    asks="How many TFLOP/s does the online kernel reach?",
    about=("A-13", "A-14"),
    answer="Less than either document prints, {online} by the write-up's own times and shapes.",
    because="The write-up prints {online:printed}, which at head dim 4096 is {factor[4096]} that. The summary's "
    "{two_pass:printed} belong to another kernel, two passes with float4 loads. On the {card} the online "
    "kernel reaches {here}.",
)
def rates(e: Evidence) -> tuple[Items, Comparison]:
    online = item(
        "by the write-up's own times and shapes",
        e.size("attention_online", "flops", hdim=LOG) / stated(LOG, "N301", "N303", "N305", "N307") / 1000000000.0,
        "TFLOP/s",
        printed=stated(LOG, "N302", "N304", "N306", "N308"),
    )
    factor = item(
        "printed over that",
        stated(LOG, "N302", "N304", "N306", "N308")
        / (e.size("attention_online", "flops", hdim=LOG) / stated(LOG, "N301", "N303", "N305", "N307") / 1000000000.0),
    )
    two_pass = item(
        "by the log's times of two passes with float4 loads",
        e.size("attention_two_pass_float4", "flops", hdim=BOTH) / stated(BOTH, "X013", "X014") / 1000000000.0,
        "TFLOP/s",
        printed=stated(BOTH, "N265", "N266"),
    )
    here = item("the online kernel here", e.tflops("attention_online", hdim=LOG), "TFLOP/s")
    items = {"online": online, "factor": factor, "two_pass": two_pass, "here": here}
    return items, every(factor > 1.1, two_pass.near(0.05), here > 0)


@question(
    CHAPTER,
    "which_kernel",
    asks="Which kernel do the write-up's times of fused RoPE belong to?",
    about=("C-03", "C-05"),
    answer="To V1, which loads tables. The text beside them describes V4, which caches frequencies.",
    because="The write-up prints {tables:printed}, the log's times of V1; the log's times of V4 are {cached}. The "
    "difference matters. On the {card} V1 runs at {here[128]} the speed of V4 at head dim 128, and at "
    "{here[2048]} at 2048.",
)
def which_kernel(e: Evidence) -> tuple[Items, Comparison]:
    tables = item(
        "log, V1: loads tables",
        stated(ROPE, "N109", "N112", "N115"),
        "ms",
        printed=stated(ROPE, "N341", "N344", "N347"),
    )
    cached = item("log, V4: caches frequencies", stated(ROPE, "N144", "N146", "N147"), "ms")
    here = item(
        "V1 over V4, here",
        e.speedup("rope_v1c", "rope_v4", hdim=ROPE, rotary="full"),
        printed=stated(ROPE, "N144", "N146", "N147") / stated(ROPE, "N109", "N112", "N115"),
    )
    items = {"tables": tables, "cached": cached, "here": here}
    return items, every(tables.near(0.05), here.at(128) > 1.03, here.at(2048) < 1)


@question(
    CHAPTER,
    "fourth",
    asks="How fast is RoPE V4 next to separate kernels?",
    about=("C-10", "C-11"),
    answer="It runs at {log} their speed by the log's own times, not at the {log:printed} that the write-up prints.",
    because="The write-up prints {six} for V6 as well. On the {card} V4 runs at {here} at head dim 2048, as in the "
    "log.",
)
def fourth(e: Evidence) -> tuple[Items, Comparison]:
    log = item(
        "V4 over separate kernels, by the log's times", said("X096") / said("N147"), printed=said("N360"), hdim=2048
    )
    six = item("the same of V6, as the write-up prints it", said("N369"), hdim=2048)
    here = item(
        "V4 over separate kernels, here",
        e.speedup("rope_v4", "rope_separate", hdim=2048, rotary="full"),
        printed=said("X096") / said("N147"),
    )
    items = {"log": log, "six": six, "here": here}
    return items, every(log > 0.7, log < 1, here.near(0.05), here < 1)


@question(
    CHAPTER,
    "traffic",
    asks="How much traffic do separate kernels add?",
    about=("B-15", "B-20"),
    answer="At head dim 2048 a call writes {written} of embedded Q and K and reads them again. Neither document "
    "has this number.",
    because="The write-up's {written:printed} is one head's. By the analysis's own items the write of Q is {share} "
    "of the traffic, not {share:printed}. Of all bytes that the kernels ask for, with K and V read again "
    "for every query, it is {asked}.",
)
def traffic(e: Evidence) -> tuple[Items, Comparison]:
    written = item(
        "written as embedded Q and K, a call",
        32
        * (
            e.count(FLOAT4, "global.write.sectors", hdim=2048, launch=0)
            + e.count(FLOAT4, "global.write.sectors", hdim=2048, launch=1)
        )
        / 1000000.0,
        "MB",
        printed=said("N313"),
    )
    share = item(
        "the write of embedded Q, of the analysis's own items",
        100 * said("N063") / (said("N059") + said("N060") + said("N061") + said("N062")),
        "%",
        printed=said("N065"),
        hdim=2048,
    )
    asked = item(
        "the same, of all that the kernels ask for",
        100
        * e.count(FLOAT4, "global.write.sectors", hdim=2048, launch=0)
        / (e.count(FLOAT4, "global.read.sectors", hdim=2048) + e.count(FLOAT4, "global.write.sectors", hdim=2048)),
        "%",
    )
    items = {"written": written, "share": share, "asked": asked}
    return items, every(written > 1.1, share > 11, asked < 1)


@question(
    CHAPTER,
    "tile",
    asks="Can one tile take as long as the report says?",
    about=("E-17",),
    answer="No. Its {launch:printed} are mostly the launch.",
    because="At that price the tiles of Q·K alone would take {sum} the time that the report gives for the whole "
    "kernel. On the {card} one such product takes {one} on the GPU and {launch} when it is launched each "
    "time; all of them in one launch take {all}.",
)
def tile(e: Evidence) -> tuple[Items, Comparison]:
    sum_ = item(
        "all tiles of Q·K at the printed price, over the whole of Phase 4",
        e.size("fp16_phase4", "seq_q", **HALF)
        / 32
        * e.size("fp16_phase4", "seq_k", **HALF)
        / 64
        * e.size("fp16_phase4", "heads", **HALF)
        * said("N478")
        / said("N446"),
    )
    one = item("one such product on the device", e.ceiling("one_tile_gemm_us"), "µs", hdim=64)
    launch = item(
        "one such product, launched each time",
        e.ceiling("one_tile_gemm_launch_us"),
        "µs",
        printed=1000 * said("N478"),
        hdim=64,
    )
    all_ = item("all of them in one launch", e.ceiling("all_tiles_gemm_us"), "µs", hdim=64)
    items = {"sum": sum_, "one": one, "launch": launch, "all": all_}
    return items, every(sum_ > 1, one < launch, all_ < launch)
