"""Why the kernels take the time that they take."""

from __future__ import annotations

from typing import Any

from ..evidence import Comparison, Evidence, every, said, stated
from .measures import DRAM, L1, L2, busiest_memory_percent, fp32_percent, memory_percent, shared_wavefronts
from .question import Items, item, question

CHAPTER = "causes"
BOTH, SINUSOIDAL, ROPE = (512, 2048), (512, 2048, 4096), (128, 512, 2048)
LOG, WIDE = (*SINUSOIDAL, 8192), (*ROPE, 4096, 8192)
LARGE = (2048, 4096, 8192, 16384)
HALF: dict[str, Any] = {"hdim": 64, "seq_q": 512}
ABLATION: dict[str, Any] = {"study": "ablation", **HALF}


@question(
    CHAPTER,
    "bound",
    asks="Is attention memory bound?",
    about=("A-09", "A-11", "A-17", "C-02", "C-27"),
    answer="The corrected online kernel is not, and it is not compute bound either. Its warps wait, most of the "
    "time at barriers.",
    because="On the {card} this kernel uses {dram} of the DRAM bandwidth, {l2} of the L2's and {l1} of the path to "
    "L1 and shared memory. Its FP32 units do {fp32} of what they can, and a scheduler issues in {issue} of "
    "its cycles. A warp spends {barrier} of its time at barriers and {memory} waiting for its loads. With "
    "32 times as many heads it computes at {filled[512]} the rate at head dim 512, and {filled[2048]} at "
    "2048, in the latest run that measured both loads. At the load of the authors' card the busiest of "
    "these units comes near what is called bound here, 60 % (matched rows of <a "
    "href='claims.html#A-09'>A-09</a>). RoPE V1 with scalar loads is bound, by the path to L1 ({scalar} of "
    "its peak); of L2 and DRAM it uses {scalar_far}. <a href='claims.html#C-02'>C-02</a> is about RoPE V1 "
    "alone, <a href='claims.html#C-27'>C-27</a> about separate kernels as well, so one can hold and the "
    "other not. The attention of separate kernels uses {separate} of whichever memory is busiest.",
)
def bound(e: Evidence) -> tuple[Items, Comparison]:
    dram = item("DRAM throughput, of its peak", e.counter("attention_online_fixed", DRAM, hdim=LOG), "%")
    l2 = item("L2 throughput, of its peak", e.counter("attention_online_fixed", L2, hdim=LOG), "%")
    l1 = item("L1 and shared memory's data path, of its peak", e.counter("attention_online_fixed", L1, hdim=LOG), "%")
    fp32 = item("FLOP a second, of what the FP32 units can", fp32_percent(e, "attention_online_fixed", hdim=LOG), "%")
    issue = item(
        "cycles in which a scheduler issues",
        e.counter("attention_online_fixed", "smsp__issue_active.avg.pct_of_peak_sustained_active", hdim=LOG),
        "%",
    )
    barrier = item("a warp's time at barriers", 100 * e.stalled("attention_online_fixed", "barrier", hdim=LOG), "%")
    memory = item(
        "a warp's time waiting for global memory",
        100 * e.stalled("attention_online_fixed", "long_scoreboard lg_throttle", hdim=LOG),
        "%",
    )
    filled = item(
        "rate with 32 times the heads, over that with 4",
        e.tflops("attention_online_fixed", study="filled", hdim=BOTH)
        / e.tflops("attention_online_fixed", study="controlled", hdim=BOTH),
    )
    scalar = item(
        "L1, L2 or DRAM, the busiest, of RoPE V1 with scalar loads, of its peak",
        busiest_memory_percent(e, "rope_v1b", hdim=ROPE),
        "%",
    )
    scalar_far = item("L2 or DRAM alone, the busier, of the same", memory_percent(e, "rope_v1b", hdim=ROPE), "%")
    separate = item(
        "L1, L2 or DRAM, the busiest, of the attention of separate RoPE kernels",
        busiest_memory_percent(e, "rope_separate", hdim=ROPE, rotary="full"),
        "%",
    )
    items = {
        "dram": dram,
        "l2": l2,
        "l1": l1,
        "fp32": fp32,
        "issue": issue,
        "barrier": barrier,
        "memory": memory,
        "filled": filled,
        "scalar": scalar,
        "scalar_far": scalar_far,
        "separate": separate,
    }
    return items, every(
        dram < 60,
        l2 < 60,
        l1 < 60,
        fp32 < 60,
        issue < 60,
        barrier > 50,
        filled > 1.1,
        scalar > 60,
        scalar_far < 60,
        separate < 60,
    )


@question(
    CHAPTER,
    "phase6",
    asks="Why did Phase 6 lose to Phase 4?",
    about=("E-03", "E-04", "E-05", "E-06", "E-07"),
    answer="Bank conflicts, in the one warp that computes, which the report lists among four causes. Padding its "
    "rows in shared memory closes {padded} of the gap, nearly all of it.",
    because="On the {card} Phase 6 runs at {slow} the speed of Phase 4, by the report's times at {slow:printed}. A "
    "wavefront is one pass over the 32 banks of shared memory; by the card's counters an access takes "
    "{conflicts} of them, and {conflicts_padded} with padded rows. {rows} of a block's {threads} threads "
    "have a row, which is one warp. The others wait at barriers ({barrier} of a warp's time). They cost "
    "nothing by themselves, since with 32 threads a block the kernel runs at {fewer} the speed. A warp for "
    "each row closes {warp} of the gap; it spreads the rows over the banks as well, {conflicts_warp} "
    "wavefronts an access, so it does not tell idle threads from conflicts. It is not register pressure, "
    "since nothing spills ({spill}).",
)
def phase6(e: Evidence) -> tuple[Items, Comparison]:
    slow = item(
        "Phase 6 over Phase 4 with the same mask",
        e.speedup("fp16_phase6_iter2", "fp16_phase4_causal", **ABLATION),
        printed=said("N446") / said("N422"),
    )
    padded = item(
        "share of the gap to Phase 4 that closes with padded rows",
        100 * e.share_closed("fp16_phase6_iter2", "fp16_phase6_iter2_padded", "fp16_phase4_causal", **ABLATION),
        "%",
    )
    conflicts = item(
        "wavefronts of a shared access, Phase 6, by the card's counters",
        shared_wavefronts(e, "fp16_phase6_iter2", **HALF),
        "",
    )
    conflicts_padded = item("the same with padded rows", shared_wavefronts(e, "fp16_phase6_iter2_padded", **HALF), "")
    conflicts_warp = item(
        "the same with a warp a row", shared_wavefronts(e, "fp16_phase6_iter2_warp_per_row", **HALF), ""
    )
    warp = item(
        "share of the gap that closes with a warp a row",
        100 * e.share_closed("fp16_phase6_iter2", "fp16_phase6_iter2_warp_per_row", "fp16_phase4_causal", **ABLATION),
        "%",
    )
    fewer = item(
        "Phase 6 with 32 threads a block over Phase 6",
        e.speedup("fp16_phase6_iter2_32_threads", "fp16_phase6_iter2", **ABLATION),
    )
    rows = item(
        "threads of a block that have a row",
        e.size("fp16_phase6_iter2", "seq_q", **HALF)
        * e.size("fp16_phase6_iter2", "heads", **HALF)
        / e.blocks("fp16_phase6_iter2", **HALF),
        "",
    )
    threads = item("threads of a block", e.threads("fp16_phase6_iter2", **HALF), "")
    spill = item("what iteration 1 spills per thread", e.resource("fp16_phase6_iter1", "spill_bytes", **HALF), "B")
    barrier = item("a warp's time at barriers", 100 * e.stalled("fp16_phase6_iter2", "barrier", **HALF), "%")
    items = {
        "slow": slow,
        "padded": padded,
        "conflicts": conflicts,
        "conflicts_padded": conflicts_padded,
        "conflicts_warp": conflicts_warp,
        "warp": warp,
        "fewer": fewer,
        "rows": rows,
        "threads": threads,
        "spill": spill,
        "barrier": barrier,
    }
    return items, every(
        slow < 1,
        padded > 90,
        padded < 100,
        conflicts > 8,
        conflicts_padded < 4,
        rows < 33,
        fewer > 0.97,
        fewer < 1.03,
        spill < 1,
        warp > 100,
        conflicts_warp > conflicts_padded,
    )


@question(
    CHAPTER,
    "hybrid",
    asks="Why did RoPE V7 win in the log?",
    about=("C-18", "C-19", "C-21"),
    answer="Whether for the load of its authors' card or for another reason is not known; their timer helped. With "
    "as many blocks per SM it wins on the {card} too, up to head dim 2048, by a wave of blocks; in our "
    "build for their card both need as many waves. The timer adds to separate kernels a launch and a host "
    "wait that V7 does not have.",
    because="At the published shapes V7 runs at {device[128]}, {device[512]} and {device[2048]} the speed of "
    "separate kernels on the {card} at head dims 128, 512 and 2048, and at {launched[128]}, {launched[512]} "
    "and {launched[2048]} with launches and host waits timed. With as many blocks per SM as on the authors' "
    "card it runs at {loaded[128]}, {loaded[512]} and {loaded[2048]}, and so timed at "
    "{loaded_launched[128]}, {loaded_launched[512]} and {loaded_launched[2048]}; the log prints "
    "{launched[128]:printed}, {launched[512]:printed} and {launched[2048]:printed}. At that load, on the "
    "{card}, the blocks of separate kernels need a second wave, and those of V7 do not. With more heads, so "
    "that both need two, V7 loses again (<a href='rope.html'>RoPE</a>). Our build for the authors' card has "
    "registers for five blocks of either kernel to an SM, and then both need two waves there. With one host "
    "wait on both sides V7 runs at {one_sync[128]}, {one_sync[512]} and {one_sync[2048]} at the published "
    "shapes. Where all blocks fit it loses because a bounds test keeps its loop from being unrolled. "
    "Without the test, in CUDA C++, V7 runs at {no_break} the speed of separate kernels.",
)
def hybrid(e: Evidence) -> tuple[Items, Comparison]:
    device = item(
        "V7 over separate kernels, on the device", e.speedup("rope_v7", "rope_separate", hdim=WIDE, rotary="partial")
    )
    launched = item(
        "the same with launches and host waits timed",
        e.speedup("rope_v7", "rope_separate", hdim=WIDE, rotary="partial", timer="launched"),
        printed=stated(WIDE, "N199", "N201", "N203", "X085", "X086"),
    )
    one_sync = item(
        "the same, where separate kernels have one host wait as V7 has",
        e.speedup("rope_v7", "rope_separate_one_sync", study="host", hdim=WIDE, rotary="partial", timer="launched"),
    )
    loaded = item(
        "V7 over separate kernels on the device, with as many blocks per SM as on the authors' card",
        e.speedup("rope_v7", "rope_separate", study="matched", hdim=WIDE, rotary="partial"),
    )
    loaded_launched = item(
        "the same with launches and host waits timed",
        e.speedup("rope_v7", "rope_separate", study="matched", hdim=WIDE, rotary="partial", timer="launched"),
        printed=stated(WIDE, "N199", "N201", "N203", "X085", "X086"),
    )
    saved = item(
        "saved on the device, a call (below zero it loses)",
        e.time("rope_separate", hdim=WIDE, timer="device_warm", rotary="partial")
        - e.time("rope_v7", hdim=WIDE, timer="device_warm", rotary="partial"),
        "µs",
    )
    saved_launched = item(
        "saved with launches and host waits timed",
        e.time("rope_separate", hdim=WIDE, timer="launched", rotary="partial")
        - e.time("rope_v7", hdim=WIDE, timer="launched", rotary="partial"),
        "µs",
    )
    launches = item(
        "launches that V7 saves",
        e.launches("rope_separate", hdim=WIDE, rotary="partial") - e.launches("rope_v7", hdim=WIDE, rotary="partial"),
        "",
    )
    syncs = item(
        "host waits that it saves",
        e.syncs("rope_separate", hdim=WIDE, rotary="partial") - e.syncs("rope_v7", hdim=WIDE, rotary="partial"),
        "",
    )
    no_break = item(
        "RoPE V7 over separate kernels, both in CUDA C++, without the bounds test in its loop",
        e.speedup("control_rope_v7_no_break", "control_rope_separate", study="ablation", hdim=WIDE, rotary="partial"),
    )
    items = {
        "device": device,
        "launched": launched,
        "one_sync": one_sync,
        "loaded": loaded,
        "loaded_launched": loaded_launched,
        "saved": saved,
        "saved_launched": saved_launched,
        "launches": launches,
        "syncs": syncs,
        "no_break": no_break,
    }
    return items, every(
        device < 1,
        launched.at(128) > 1.03,
        one_sync.at(2048) < 1,
        loaded.at(*ROPE) > 1.03,
        loaded.at(4096, 8192) < 1,
        loaded_launched.near(0.1),
        no_break > 1.03,
    )


@question(
    CHAPTER,
    "rotation",
    asks="Is fused RoPE slow because it rotates again?",
    about=("C-08", "C-15", "C-16", "C-23"),
    answer="Only in part. Rotating again is more than half of V2's gap to separate kernels, and less than half of "
    "V3's and of V6's with full rotation.",
    because="On the {card} {v2} of V2's gap closes when K is not rotated and its angles are not computed, {v3} of "
    "V3's and {v6} of V6's. Where V6 rotates only a part of the dims, the share falls from "
    "{v6_partial[128]} at head dim 128 to {v6_partial[2048]} at 2048. There more closes with all threads at "
    "the scores ({threads6}). Bank conflicts cost V6 as well. By the card's counters a shared access takes "
    "{banks6} wavefronts in place of one, and padded rows close {padded6}. Fewer rotations pay where there "
    "are enough blocks. V3 makes {rotations3[2048]} of V2's rotations and runs at {few} its speed with the "
    "log's 4 heads, and at {many} with 128.",
)
def rotation(e: Evidence) -> tuple[Items, Comparison]:
    v2 = item(
        "share of V2's gap that closes without rotating K",
        100
        * e.share_closed("rope_v2", "rope_v2_no_rotation", "rope_separate", study="ablation", hdim=ROPE, rotary="full"),
        "%",
    )
    v3 = item(
        "share of V3's gap that closes without rotating K",
        100
        * e.share_closed("rope_v3", "rope_v3_no_rotation", "rope_separate", study="ablation", hdim=ROPE, rotary="full"),
        "%",
    )
    v6 = item(
        "share of V6's gap that closes without rotating K",
        100
        * e.share_closed(
            "rope_v6a", "rope_v6b_no_rotation", "rope_separate", study="ablation", hdim=ROPE, rotary="full"
        ),
        "%",
    )
    v6_partial = item(
        "the same with partial rotation",
        100
        * e.share_closed(
            "rope_v6b", "rope_v6b_no_rotation", "rope_separate", study="ablation", hdim=ROPE, rotary="partial"
        ),
        "%",
    )
    threads6 = item(
        "share of V6's gap that closes with all threads at the scores, partial rotation",
        100
        * e.share_closed(
            "rope_v6b", "rope_v6b_all_threads", "rope_separate", study="ablation", hdim=ROPE, rotary="partial"
        ),
        "%",
    )
    padded6 = item(
        "share of V6's gap that closes with padded rows, partial rotation",
        100
        * e.share_closed("rope_v6b", "rope_v6b_padded", "rope_separate", study="ablation", hdim=ROPE, rotary="partial"),
        "%",
    )
    rotations3 = item(
        "rotations of V3, of those of V2",
        100
        * e.count("rope_v3", "event.rotation", hdim=ROPE, rotary="full")
        / e.count("rope_v2", "event.rotation", hdim=ROPE, rotary="full"),
        "%",
    )
    few = item("V3 over V2, the log's 4 heads", e.speedup("rope_v3", "rope_v2", hdim=ROPE, rotary="full"))
    many = item("V3 over V2, 128 heads", e.speedup("rope_v3", "rope_v2", study="filled", hdim=ROPE, rotary="full"))
    banks6 = item(
        "wavefronts of a shared access, V6, by the card's counters",
        shared_wavefronts(e, "rope_v6a", hdim=ROPE, rotary="full"),
        "",
    )
    items = {
        "v2": v2,
        "v3": v3,
        "v6": v6,
        "v6_partial": v6_partial,
        "threads6": threads6,
        "padded6": padded6,
        "rotations3": rotations3,
        "few": few,
        "many": many,
        "banks6": banks6,
    }
    return items, every(
        v2 > 50,
        v2 < 75,
        v3 > 25,
        v3 < 50,
        v6 > 25,
        v6 < 50,
        v6_partial.at(128) > v6_partial.at(512),
        v6_partial.at(512) > v6_partial.at(2048),
        threads6 > v6_partial,
        padded6 > 20,
        banks6 > 2,
        rotations3 < 50,
        few < 1,
        many > 1.03,
    )


@question(
    CHAPTER,
    "idle",
    asks="What do threads without a key cost?",
    about=("A-17", "C-12"),
    answer="Much. With all threads at the scores, attention in two passes runs at {attention} the speed of one "
    "thread a key.",
    because="In the score phase one thread takes a whole key. At head dims 512 and 2048 these are {keys[512]} of "
    "{threads[512]}, at 4096 {keys[4096]}, at 8192 {keys[8192]}. The fewer they are, the more it costs. "
    "With all threads at the scores and the same bytes, attention runs at {attention[512]}, "
    "{attention[2048]}, {attention[4096]} and {attention[8192]} the speed on the {card}. In RoPE V5 that "
    "closes {v5[128]} of the gap to separate kernels at head dim 128, where 16 keys are in a tile, and "
    "{v5[2048]} at 2048, where 4 are; in V6, {v6}.",
)
def idle(e: Evidence) -> tuple[Items, Comparison]:
    keys = item(
        "threads of an attention block that own a key", e.size("attention_two_pass_float4", "seq_k", hdim=LOG), ""
    )
    threads = item("threads of the block", e.threads("attention_two_pass_float4", hdim=LOG), "threads")
    attention = item(
        "attention in two passes with all threads at the scores, over one thread a key",
        e.speedup("attention_two_pass_all_warps", "attention_two_pass_float4", study="ablation", hdim=LOG),
    )
    v5 = item(
        "share of V5's gap to separate kernels that closes with all threads at the scores",
        100
        * e.share_closed("rope_v5", "rope_v5_all_threads", "rope_separate", study="ablation", hdim=ROPE, rotary="full"),
        "%",
    )
    v6 = item(
        "share of V6's gap that closes with all threads at the scores, partial rotation",
        100
        * e.share_closed(
            "rope_v6b", "rope_v6b_all_threads", "rope_separate", study="ablation", hdim=ROPE, rotary="partial"
        ),
        "%",
    )
    items = {"keys": keys, "threads": threads, "attention": attention, "v5": v5, "v6": v6}
    return items, every(
        attention > 1.4,
        attention.at(4096) > attention.at(2048),
        attention.at(8192) > attention.at(4096),
        v5 > 30,
        v5.at(2048) > v5.at(512),
        v5.at(512) > v5.at(128),
        v6 > 50,
    )


@question(
    CHAPTER,
    "cliff",
    asks="Is the fall at head dim 8192 an L2 cliff?",
    about=("A-12",),
    answer="Mostly not. The published shapes leave {blocks[8192]} for {sms}; with 4 heads of 64 queries at every "
    "head dim, most of the fall is gone.",
    because="The documents shrink heads and queries as the head dim grows. In their shapes, on the {card}, the "
    "corrected online kernel reaches, at head dim 8192, {fall} of its rate at 4096. With 4 heads of 64 "
    "queries at every head dim it reaches {fall_held}, where the tensors of a call take {used_held[8192]} "
    "of the L2. DRAM moves {dram} of what it can.",
)
def cliff(e: Evidence) -> tuple[Items, Comparison]:
    published = item("TFLOP/s in the published shapes", e.tflops("attention_online_fixed", hdim=LARGE), "TFLOP/s")
    blocks = item("blocks of a call, published", e.blocks("attention_online_fixed", hdim=LARGE), "blocks")
    held = item(
        "TFLOP/s with 4 heads of 64 queries",
        e.tflops("attention_online_fixed", study="controlled", hdim=LARGE),
        "TFLOP/s",
    )
    used_held = item(
        "Q, K, V and out of a call, of this L2, heads and queries held",
        100
        * 4
        * 4
        * e.size("attention_online_fixed", "batch", study="controlled", hdim=LARGE)
        * e.size("attention_online_fixed", "heads", study="controlled", hdim=LARGE)
        * e.size("attention_online_fixed", "seq_q", study="controlled", hdim=LARGE)
        * e.size("attention_online_fixed", "hdim", hdim=LARGE)
        / e.identity("l2_bytes"),
        "%",
    )
    sms = item("SMs of this GPU", e.identity("sms"), "SMs", hdim=8192)
    fall = item(
        "rate, of that at 4096, published shapes",
        100 * e.tflops("attention_online_fixed", hdim=8192)[8192] / e.tflops("attention_online_fixed", hdim=4096)[4096],
        "%",
        hdim=8192,
    )
    fall_held = item(
        "rate, of that at 4096, heads and queries held",
        100
        * e.tflops("attention_online_fixed", study="controlled", hdim=8192)[8192]
        / e.tflops("attention_online_fixed", study="controlled", hdim=4096)[4096],
        "%",
        hdim=8192,
    )
    dram = item(
        "DRAM throughput, of its peak, published shapes", e.counter("attention_online_fixed", DRAM, hdim=8192), "%"
    )
    items = {
        "published": published,
        "blocks": blocks,
        "held": held,
        "used_held": used_held,
        "sms": sms,
        "fall": fall,
        "fall_held": fall_held,
        "dram": dram,
    }
    return items, every(fall < 25, fall_held > 50, fall_held < 100, dram < 10)
