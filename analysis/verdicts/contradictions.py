"""Where the documents contradict each other, their own numbers or their card, and which statement stands.

Each function says which one stands by the values found; above it are the question, what is measured, and why.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from kernels import Problem
from kernels.reference import attention, make_inputs

from ..records.interval import TIE
from .argument import (
    BOUND,
    DRAM,
    HALF,
    HALF_PRECISION,
    OPEN,
    SEEN,
    Argument,
    Findings,
    Found,
    Item,
    closed,
    collect,
    fp32_percent,
    memory_percent,
    printed,
    rotations,
    speed,
    waits,
)
from .facts import Facts

TOLERANCE = 5e-2  # what the source's programs compare with; noted at row N395 of data/published.csv
ADA_L2_MIB = (
    48.0  # of the whole AD104, the chip of the RTX 4000 Ada, which may have less of it (NVIDIA on the Ada architecture)
)
NEAR = 0.05  # how near two numbers are that mean the same

SHAPES = (512, 2048, 4096, 8192)
SINUSOIDAL = (512, 2048, 4096)
ROPE = (128, 512, 2048)
PRINTED_MS = {512: "N301", 2048: "N303", 4096: "N305", 8192: "N307"}
PRINTED_RATE = {512: "N302", 2048: "N304", 4096: "N306", 8192: "N308"}

CONTRADICTIONS: dict[str, Argument] = {}
contradiction = collect(CONTRADICTIONS)


def _same(found: Found) -> bool:
    """Whether every value is what the documents print for it."""
    return bool(found) and all(abs(each.value / found.said[hdim] - 1) < NEAR for hdim, each in found.values.items())


# ---------------------------------------------------------------- measured for causes.py too

BOTH_ON_TENSOR_CORES = Item(
    "two passes with both products on tensor cores, over two passes",
    speed("attention_two_pass_mma", "attention_two_pass_float4", study="ablation"),
)
V2_UNROTATED = Item(
    "share of V2's gap that goes without rotating K",
    closed("rope_v2", "rope_v2_no_rotation", "rope_separate", rotary="full"),
    "%",
)
V7_LAUNCHED = Item(
    "the same with launches and host syncs timed",
    speed("rope_v7", "rope_separate", rotary="partial", timer="launched"),
)
PHASE6_SPILL = Item(
    "bytes that a thread of iteration 1 spills",
    lambda f, d: f.resource("fp16_phase6_iter1", "spill_bytes", d, **HALF_PRECISION),
    "B",
)


# ---------------------------------------------------------------- what most of the rest hangs on


@contradiction(
    "Is fused sinusoidal attention faster than separate kernels, or slower?",
    dims=SINUSOIDAL,
    claims=("B-07", "B-08", "B-09"),
    needs=("scalar", "float4"),
    items={
        "scalar": Item(
            "V5 over separate kernels that load one float",
            speed("sinusoidal_v5", "sinusoidal_separate_scalar"),
            said=printed({512: "N332", 2048: "N335", 4096: "N338"}),
        ),
        "float4": Item(
            "V5 over separate kernels that load four",
            speed("sinusoidal_v5", "sinusoidal_separate_float4"),
            said=printed({512: ("N077", "N066"), 2048: ("N078", "N067"), 4096: ("N079", "N068")}),
        ),
        "loads": Item(
            "separate kernels, four floats a load over one",
            speed("sinusoidal_separate_float4", "sinusoidal_separate_scalar"),
            said=printed({512: ("N330", "N077"), 2048: ("N333", "N078"), 4096: ("N336", "N079")}),
        ),
    },
    because=(
        "Fused V5 {scalar:as} the write-up's separate kernels, which load one float at a time, and {float4:as} the "
        "analysis's, which load four.",
        "With nothing fused, loading four {loads:as} loading one.",
    ),
)
def baseline(found: Findings) -> str:
    scalar, vector = found["scalar"], found["float4"]
    if scalar.above(TIE) and vector.below(1):
        return "Both, each against its own baseline"
    if scalar.above(TIE) and vector.above(1):
        return "The write-up's, against either baseline"
    return "The analysis's, against either baseline" if scalar.below(1) else "Neither at every head dim"


@contradiction(
    "Do K and V overflow the L2 at head dim 8192?",
    dims=(8192,),
    claims=("A-11", "A-12"),
    needs=("fall", "held"),
    items={
        "kv": Item(
            "K and V of the one head", lambda f, d: 2 * 4 * f.size("attention_online", "seq_k", d) * d / 2**20, "MiB"
        ),
        "ada": Item("L2 of the RTX 4000 Ada's chip, whole", lambda f, d: ADA_L2_MIB, "MiB"),
        "l2": Item("L2 of this GPU", lambda f, d: f.gpu("l2_bytes") / 2**20, "MiB"),
        "fall": Item(
            "rate, of that at 4096, in the published shapes",
            lambda f, d: 100 * f.tflops("attention_online", d) / f.tflops("attention_online", 4096),
            "%",
            lambda f, d: 100 * f.said("N308") / f.said("N306"),
        ),
        "held": Item(
            "the same with 4 heads of 64 queries at both",
            lambda f, d: 100 * _held(f, d) / _held(f, 4096),
            "%",
        ),
        "blocks": Item("blocks of a call, published shape", lambda f, d: f.blocks("attention_online", d), "blocks"),
        "sms": Item("SMs of this GPU", lambda f, d: f.gpu("sms"), "SMs"),
        "dram": Item(
            "read from DRAM in a call, of the bytes of Q, K and V, caches warm",
            lambda f, d: (
                100
                * f.counter("attention_online", "dram__bytes_read.sum", d)
                / (3 * 4 * f.size("attention_online", "seq_k", d) * d)
            ),
            "%",
        ),
    },
    because=(
        "K and V take {kv}; the L2 of the documents' card holds {ada}, that of this one {l2}.",
        "In the published shapes, which leave {blocks} of work for {sms}, the rate is {fall} of that at 4096; with "
        "heads and queries held it is {held}.",
        "With warm caches a call reads {dram} of Q, K and V from DRAM.",
    ),
)
def cliff(found: Findings) -> str:
    if not found["kv"].below(min(ADA_L2_MIB, found["l2"].values[8192].value)):
        return "The write-up's: K and V do not fit"
    apart = found["held"].above(2 * found["fall"].values[8192].value)
    return "Not the cache, which holds K and V, but the shapes" if apart else "Not the cache, which holds K and V"


def _held(facts: Facts, hdim: int) -> Any:
    return facts.tflops("attention_online", hdim, study="controlled")


@contradiction(
    "Of which card's bandwidth is how much used?",
    dims=(8192,),
    claims=("A-10", "A-12"),
    items={
        "rate": Item("rate that the summary states", printed({8192: "N235"}), "GB/s"),
        "a100": Item("peak that it divides by", printed({8192: "N236"}), "GB/s"),
        "summary": Item(
            "share that this gives", lambda f, d: 100 * f.said("N235") / f.said("N236"), "%", printed({8192: "N237"})
        ),
        "ada": Item("share of the RTX 4000 Ada's peak", lambda f, d: 100 * f.said("N235") / f.said("N296"), "%"),
        "writeup": Item(
            "share by the write-up's own rate",
            lambda f, d: 100 * f.said("N310") / f.said("N311"),
            "%",
            printed({8192: "N312"}),
        ),
        "dram": Item(
            "DRAM throughput here, caches warm", lambda f, d: f.counter("attention_two_pass_float4", DRAM, d), "%"
        ),
    },
    because=(
        "The summary divides {rate} by {a100}, the peak of an A100, and finds {summary:printed}.",
        "Of the peak of the RTX 4000 Ada, on which the write-up says that all was measured, it is {ada}; by the "
        "write-up's own rate it is {writeup}.",
        "Both rates count each key once for every query; here DRAM carries {dram} of what it can.",
    ),
)
def ceilings(found: Findings) -> str:
    apart = found["ada"].above(2 * found["summary"].values[8192].value)
    return "The write-up's: the A100 was not the card" if apart else "Both"


def rate_by_shape(facts: Facts, hdim: int) -> float:
    """TFLOP/s of the online kernel by the write-up's own time and shape."""
    return facts.size("attention_online", "flops", hdim) / facts.said(PRINTED_MS[hdim]) / 1e9


@contradiction(
    "How many TFLOP/s does the online kernel reach?",
    dims=SHAPES,
    claims=("A-13", "A-14"),
    items={
        "online": Item("by the write-up's own times and shapes", rate_by_shape, "TFLOP/s", printed(PRINTED_RATE)),
        "factor": Item("printed over that", lambda f, d: f.said(PRINTED_RATE[d]) / rate_by_shape(f, d)),
        "two_pass": Item(
            "by the log's times of two passes with float4 loads",
            lambda f, d: f.size("attention_two_pass_float4", "flops", d) / f.said({512: "X013", 2048: "X014"}[d]) / 1e9,
            "TFLOP/s",
            printed({512: "N265", 2048: "N266"}),
            dims=(512, 2048),
        ),
        "here": Item("the online kernel here", lambda f, d: f.tflops("attention_online", d), "TFLOP/s"),
    },
    because=(
        "The write-up prints {online:printed} where its own times and shapes give {online}: {factor} as much.",
        "The summary's {two_pass:printed} follow from the log's times of another kernel, two passes with float4 loads.",
        "Here the online kernel reaches {here}.",
    ),
)
def rates(found: Findings) -> str:
    if _same(found["online"]):
        return "The write-up's"
    return "The summary's, for another kernel" if _same(found["two_pass"]) else "Neither"


@functools.cache
def forgotten_rope(hdim: int, inputs: str) -> float:
    """How far V7's result would move if it rotated nothing: the largest difference, on inputs of that kind."""
    rope = Problem("rope", 1, 4, seq_q=64, hdim=hdim, rotary_dim=min(128, hdim // 2))
    plain = Problem("attention", 1, 4, seq_q=64, hdim=hdim)
    given = {name: torch.from_numpy(array).double() for name, array in make_inputs(rope, inputs).items()}
    return float((attention(rope, **given) - attention(plain, **given)).abs().max())


@contradiction(
    "With what tolerance was the result checked?",
    dims=ROPE,
    claims=("D-01",),
    items={
        "stated": Item("tolerance that the write-up states", lambda f, d: f.said("N395"), ""),
        "used": Item("tolerance that the programs compare with", lambda f, d: TOLERANCE, ""),
        "forgotten": Item("error of V7 if it rotated nothing", lambda f, d: forgotten_rope(d, "uniform"), ""),
        "sharp": Item("the same on inputs whose scores spread", lambda f, d: forgotten_rope(d, "sharp"), ""),
        "right": Item("error of V7", lambda f, d: f.error("rope_v7", d), ""),
    },
    because=(
        "The write-up states {stated}; the programs compare with {used}.",
        "On the source's inputs attention is nearly an average: if V7 rotated nothing, its result would move by "
        "{forgotten}. Where scores spread it would move by {sharp}.",
        "As it is, V7 is off by {right}.",
    ),
)
def tolerance(found: Findings) -> str:
    passed = [str(hdim) for hdim, moved in found["forgotten"].values.items() if moved.value < TOLERANCE]
    without = f", which V7 without RoPE would pass at head dim {' and '.join(passed)}" if passed else ""
    return f"The wider one was used{without}"


@contradiction(
    "Do all tests pass?",
    dims=SHAPES,
    claims=("A-06", "D-01"),
    needs=("nan",),
    items={
        "nan": Item(
            "outputs that are not a number, online as published",
            lambda f, d: 100 * f.nan_share("attention_online", d),
            "%",
        ),
        "fixed": Item(
            "the same with its reductions corrected", lambda f, d: 100 * f.nan_share("attention_online_fixed", d), "%"
        ),
        "bad": Item(
            "elements that the log counts as bad", printed({512: "X021", 2048: "X022"}), "elements", dims=(512, 2048)
        ),
    },
    because=(
        "{nan} of the outputs of the recommended kernel are not a number; {fixed} with its reductions corrected.",
        "A check that counts an element as bad where |a − b| exceeds a tolerance passes them: no comparison with NaN "
        "is true.",
        "In the run of the printed times the log counts {bad} that are bad all the same, and the test failed.",
    ),
)
def nan(found: Findings) -> str:
    return "Not all" if found["nan"].above(0) else "All"


# ---------------------------------------------------------------- causes that exclude each other


@contradiction(
    "Is attention bound by memory, or by compute?",
    dims=SHAPES,
    claims=("A-09", "E-12"),
    needs=("memory", "fp32"),
    items={
        "memory": Item(
            "attention: of what DRAM or L2 can move", lambda f, d: memory_percent(f, "attention_online_fixed", d), "%"
        ),
        "fp32": Item(
            "attention: of what the FP32 units can do", lambda f, d: fp32_percent(f, "attention_online_fixed", d), "%"
        ),
        "memory4": Item(
            "Phase 4: of what DRAM or L2 can move",
            lambda f, d: memory_percent(f, "fp16_phase4", d, **HALF_PRECISION),
            "%",
            dims=(64,),
        ),
        "fp32_4": Item(
            "Phase 4: of what the FP32 units can do",
            lambda f, d: fp32_percent(f, "fp16_phase4", d, **HALF_PRECISION),
            "%",
            dims=(64,),
        ),
    },
    because=(
        "Attention moves {memory} of what DRAM or L2 can and does {fp32} of what the FP32 units can; Phase 4 {memory4} "
        "and {fp32_4}.",
        "What a warp waits for instead is said under <a href='causes.html#bound'>causes</a>.",
    ),
)
def ceiling(found: Findings) -> str:
    near = any(not share.below(BOUND) for share in found.values() if share)
    return "One ceiling is near" if near else "Neither: no ceiling is near"


@contradiction(
    "Do tensor cores help?",
    dims=(512, 2048),
    claims=("A-17", "E-14"),
    items={
        "half": Item(
            "Phase 4 with both products on tensor cores, over Phase 4",
            speed("fp16_phase4_mma", "fp16_phase4", study="ablation", **HALF_PRECISION),
            said=printed({64: ("N470", "N469")}),
            dims=(64,),
        ),
        "single": BOTH_ON_TENSOR_CORES,
        "threads": Item(
            "two passes with all 256 threads at the scores, over two passes",
            speed("attention_two_pass_all_warps", "attention_two_pass_float4", study="ablation"),
        ),
    },
    because=(
        "Phase 4 with both products on tensor cores {half:as} Phase 4; the report expects {half:printed}.",
        "Two-pass attention with both on tensor cores {single:as} the version without.",
        "With all 256 threads at the scores, and the same traffic, it {threads:as} the version with one thread a key.",
    ),
)
def tensor_cores(found: Findings) -> str:
    known = [each for each in found.values() if each]
    if not known:
        return OPEN
    helped = any(each.above(SEEN) for each in known)
    return "The report's: computing otherwise helps" if helped else "The write-up's: only less traffic helps"


def embedded_times(facts: Facts, hdim: int) -> float:
    """How often fused sinusoidal V5 computes the embedding of each element of Q and K."""
    heads, queries, keys = (facts.size("sinusoidal_v5", name, hdim) for name in ("heads", "seq_q", "seq_k"))
    return facts.count("sinusoidal_v5", "event.sincos", hdim) / (heads * hdim * (queries + keys))


@contradiction(
    "Does fused sinusoidal attention compute anything twice?",
    dims=SINUSOIDAL,
    claims=("B-10", "B-19"),
    needs=("times",),
    items={
        "times": Item(
            "embeddings that V5 computes for each element of Q and K",
            embedded_times,
            "times",
            lambda f, d: f.said("N025"),
        ),
        "loading": Item("V5, which computes, over V2, which loads", speed("sinusoidal_v5", "sinusoidal_v2")),
    },
    because=(
        "V5 computes the embedding of each element {times}; the analysis says {times:printed}.",
        "Nor does computing cost what loading costs: V5 {loading:as} V2, which loads.",
    ),
)
def twice(found: Findings) -> str:
    if not found["times"].above(1):
        return "The write-up's"
    return "The analysis's" if _same(found["times"]) else "The analysis's, with another number"


@contradiction(
    "Does a hybrid win because Q is in the outer loop?",
    dims=(512, 2048),
    claims=("B-11", "B-18", "C-20"),
    needs=("sinusoidal", "rope"),
    items={
        "sinusoidal": Item(
            "sinusoidal hybrid V1 over separate kernels",
            speed("sinusoidal_hybrid_v1", "sinusoidal_separate_float4"),
            said=printed({512: ("N077", "N069"), 2048: ("N078", "N070")}),
        ),
        "rope": Item(
            "RoPE V7 over separate kernels",
            speed("rope_v7", "rope_separate", rotary="partial"),
            said=printed({512: "N201", 2048: "N203"}),
        ),
        "beside": Item(
            "time of RoPE V7 over that of the sinusoidal hybrid",
            lambda f, d: f.us("rope_v7", d, rotary="partial") / f.us("sinusoidal_hybrid_v1", d),
        ),
        "other": Item(
            "RoPE the other way round, K inside and Q before, over separate kernels",
            speed("rope_v7_fused_k", "rope_separate", study="ablation", rotary="partial"),
        ),
    },
    because=(
        "Both hybrids embed K before and Q inside, and keep all of Q in shared memory.",
        "The sinusoidal one {sinusoidal:as} separate kernels, RoPE's {rope:as} them.",
        "RoPE's takes {beside} the other's time; their loops differ in how many loads are in flight, "
        "<a href='../method.html'>which decides</a>.",
        "With K inside and Q before, RoPE {other:as} separate kernels.",
    ),
)
def outer_loop(found: Findings) -> str:
    sinusoidal, rope = found["sinusoidal"], found["rope"]
    if sinusoidal.above(TIE) and rope.above(TIE):
        return "The write-up's rule"
    if sinusoidal.below(TIE) and rope.above(TIE):
        return "The analysis's"
    return "Neither: it is the other way round" if sinusoidal.above(TIE) and rope.below(1) else "Neither"


@contradiction(
    "Does keeping Q in shared memory cost, or gain?",
    dims=(512, 2048),
    claims=("B-12", "C-18", "C-19"),
    items={
        "alone": Item(
            "attention with its query in shared memory, over global memory",
            speed("attention_online_shared_query", "attention_online_fixed", study="ablation"),
        ),
        "rope": Item(
            "V7 over V7 with its query in global memory",
            speed("rope_v7", "rope_v7_global_query", study="ablation", rotary="partial"),
        ),
        "waits": Item(
            "share of its time that a warp of the sinusoidal hybrid waits for shared memory",
            lambda f, d: waits(f, "sinusoidal_hybrid_v1", "mio_throttle short_scoreboard", d),
            "%",
        ),
    },
    because=(
        "Attention that copies its query to shared memory {alone:as} attention that reads it from global memory.",
        "V7 {rope:as} a V7 with its query in global memory.",
        "A warp of the sinusoidal hybrid waits for shared memory {waits} of its time.",
    ),
)
def shared_query(found: Findings) -> str:
    known = [found[key] for key in ("alone", "rope") if found[key]]
    if not known:
        return OPEN
    if all(each.below(1 / TIE) for each in known):
        return "The analysis's: it costs"
    return "The log's: it gains" if all(each.above(TIE) for each in known) else "Neither in every kernel"


@contradiction(
    "Of which kernel are the write-up's times of fused RoPE?",
    dims=ROPE,
    claims=("C-03", "C-05"),
    items={
        "tables": Item(
            "log, V1: loads tables",
            printed({128: "N109", 512: "N112", 2048: "N115"}),
            "ms",
            printed({128: "N341", 512: "N344", 2048: "N347"}),
        ),
        "computed": Item("log, V2: computes angles", printed({128: "N119", 512: "N121", 2048: "N123"}), "ms"),
        "cached": Item("log, V4: caches frequencies", printed({128: "N144", 512: "N146", 2048: "N147"}), "ms"),
        "here": Item(
            "V1 over V4, here",
            speed("rope_v1c", "rope_v4", rotary="full"),
            said=printed({128: ("N144", "N109"), 512: ("N146", "N112"), 2048: ("N147", "N115")}),
        ),
    },
    because=(
        "The write-up describes a kernel that computes angles from cached frequencies, and prints {tables:printed}.",
        "In the log those are the times of V1, which loads tables; V2, which computes, takes {computed}, and V4, which "
        "caches frequencies, {cached}.",
        "Here V1 {here:as} V4.",
    ),
)
def which_kernel(found: Findings) -> str:
    return "The log's: the one with tables" if _same(found["tables"]) else "Neither"


@contradiction(
    "Does fused RoPE lose by its table loads, or by its rotations?",
    dims=ROPE,
    claims=("C-04", "C-17"),
    needs=("loads", "turning"),
    items={
        "rotations": Item("rotations of V1 over those of separate kernels", lambda f, d: rotations(f, "rope_v1c", d)),
        "arithmetic": Item(
            "floating-point instructions of V1 over those of separate kernels",
            lambda f, d: _over_separate(f, d, "inst.fp32", "inst.fma"),
        ),
        "reads": Item(
            "sectors that V1 reads over those of separate kernels",
            lambda f, d: _over_separate(f, d, "global.read.sectors"),
        ),
        "loads": Item(
            "share of V1's gap that goes without its table loads, rotations kept",
            closed("rope_v1c", "rope_v1c_no_tables", "rope_separate", rotary="full"),
            "%",
        ),
        "turning": V2_UNROTATED,
    },
    because=(
        "V1 rotates {rotations} as often as separate kernels; all in all it executes {arithmetic} their floating-point "
        "instructions and reads {reads} their sectors.",
        "Without its table loads, every rotation kept, {loads} of its gap to separate kernels goes.",
        "Of the gap of V2, which computes the angles, {turning} goes when K is not rotated.",
    ),
)
def loads_or_rotations(found: Findings) -> str:
    loads, turning = found["loads"], found["turning"]
    if loads.above(HALF):
        return "Both, in V1 and in V2" if turning.above(HALF) else "The log's: the loads"
    return "The write-up's: the rotations" if turning.above(HALF) else "Neither alone at every head dim"


def _over_separate(facts: Facts, hdim: int, *counters: str) -> float:
    """What V1 does over what separate kernels do, all dims rotated, by some counters together."""
    first, separate = (
        sum(facts.count(version, counter, hdim, rotary="full") for counter in counters)
        for version in ("rope_v1c", "rope_separate")
    )
    return first / separate


@contradiction(
    "Is full fusion of RoPE worth it at head dim 128?",
    dims=(128,),
    claims=("C-06", "C-23"),
    needs=("device", "fast", "launched"),
    items={
        "device": Item(
            "V2 over separate kernels", speed("rope_v2", "rope_separate", rotary="full"), said=printed({128: "N125"})
        ),
        "fast": Item("V2 with fast-math, the same", speed("rope_v2_fast_math", "rope_separate", rotary="full")),
        "launched": Item(
            "V2 with fast-math, launches and syncs timed",
            speed("rope_v2_fast_math", "rope_separate", rotary="full", timer="launched"),
        ),
        "log": Item("V2, over the log's time of separate kernels beside V1", printed({128: ("N110", "N119")})),
    },
    because=(
        "On the device V2 {device:as} separate kernels, and {fast:as} them when built with fast-math.",
        "With launches and host syncs timed the latter {launched:as} them.",
        "The log's {device:printed} is of a run in which separate kernels took longest; by its time of them beside V1 "
        "it would be {log}.",
    ),
)
def small_heads(found: Findings) -> str:
    if found["device"].below(1) and found["fast"].below(1):
        alone = found["launched"].above(TIE)
        return "The conclusion's on the device, the advice's with launches timed" if alone else "The conclusion's"
    return "The advice's: V2 up to 128" if found["device"].above(1) else "It depends on the build"


@contradiction(
    "How much slower than separate kernels is RoPE V4?",
    dims=(2048,),
    claims=("C-10", "C-11"),
    items={
        "log": Item(
            "time of V4 over that of separate kernels, by the log's times",
            printed({2048: ("N147", "X096")}),
            said=lambda f, d: 1 / f.said("N360"),
        ),
        "six": Item("the same of V6, as the write-up prints it", lambda f, d: 1 / f.said("N369")),
        "here": Item(
            "the same of V4, here",
            lambda f, d: f.us("rope_v4", d, rotary="full") / f.us("rope_separate", d, rotary="full"),
        ),
    },
    because=(
        "The log's own times put V4 at {log} the time of separate kernels, where the write-up prints {log:printed}; "
        "for V6 it prints {six}.",
        "Here V4 takes {here}.",
    ),
)
def fourth(found: Findings) -> str:
    return "The write-up's" if _same(found["log"]) else "The log's"


@contradiction(
    "Is V6 limited by rotating K again?",
    dims=ROPE,
    claims=("C-15", "C-16"),
    needs=("time",),
    items={
        "fewer": Item(
            "rotations with partial rotation, of those with full",
            lambda f, d: (
                100
                * f.count("rope_v6b", "event.rotation", d, rotary="partial")
                / f.count("rope_v6a", "event.rotation", d, rotary="full")
            ),
            "%",
        ),
        "time": Item(
            "time with partial rotation over that with full",
            lambda f, d: f.us("rope_v6b", d, rotary="partial") / f.us("rope_v6a", d, rotary="full"),
        ),
        "gap": Item(
            "share of the gap that goes when K is not rotated at all",
            closed("rope_v6a", "rope_v6b_no_rotation", "rope_separate", rotary="full"),
            "%",
        ),
    },
    because=(
        "V6 with partial rotation makes {fewer} of the rotations of V6 with full rotation and takes {time} its time. "
        "If rotating decided, as both claims say, time would follow.",
        "With K not rotated at all {gap} of the gap to separate kernels goes.",
    ),
)
def sixth(found: Findings) -> str:
    return "Neither: time does not follow the rotations" if found["time"].above(1 / SEEN) else "Both: rotating decides"


@contradiction(
    "Does the RoPE hybrid beat separate kernels at every head dim?",
    dims=(*ROPE, 4096, 8192),
    claims=("C-18", "C-22"),
    needs=("device",),
    items={
        "device": Item(
            "V7 over separate kernels",
            speed("rope_v7", "rope_separate", rotary="partial"),
            said=printed({128: "N199", 512: "N201", 2048: "N203", 4096: "X085", 8192: "X086"}),
        ),
        "held": Item(
            "the same with 4 heads of 64 queries throughout",
            speed("rope_v7", "rope_separate", rotary="partial", study="controlled"),
        ),
        "launched": V7_LAUNCHED,
    },
    because=(
        "On the device V7 {device:as} separate kernels; with heads and queries held it {held:as} them.",
        "With launches and host syncs timed it {launched:as} separate kernels.",
    ),
)
def everywhere(found: Findings) -> str:
    if found["device"].above(TIE):
        return "The log's: it does"
    return "The analysis's, and below 4096 too" if found["device"].below(1) else "Neither at every head dim"


@contradiction(
    "Did Phase 6 spill, and did shared memory mend it?",
    dims=(64,),
    claims=("E-03", "E-04"),
    needs=("spill", "gap"),
    items={
        "spill": PHASE6_SPILL,
        "stack": Item(
            "bytes of arrays that it keeps in memory",
            lambda f, d: f.resource("fp16_phase6_iter1", "stack_bytes", d, **HALF_PRECISION),
            "B",
        ),
        "second": Item(
            "iteration 2 over iteration 1",
            speed("fp16_phase6_iter2", "fp16_phase6_iter1", **HALF_PRECISION),
            said=printed({64: ("N419", "N422")}),
        ),
        "gap": Item("share of the gap to Phase 4 that goes with iteration 2", lambda f, d: _mended(f, d), "%"),
    },
    because=(
        "A thread of iteration 1 spills {spill}: its arrays are indexed by the thread, so that {stack} of them lie in "
        "memory whatever the registers hold.",
        "Iteration 2, without them, {second:as} iteration 1; {gap} of the gap to Phase 4 goes.",
    ),
)
def spills(found: Findings) -> str:
    if not found["spill"].below(1):
        return "The diagnosis: it spills"
    return (
        "Neither: nothing spills, and little is mended" if found["gap"].below(HALF) else "The cure, not the diagnosis"
    )


def _mended(facts: Facts, hdim: int) -> Any:
    names = ("fp16_phase6_iter1", "fp16_phase6_iter2", "fp16_phase4")
    slow, second, fast = (facts.us(name, hdim, **HALF_PRECISION) for name in names)
    return 100 * (slow - second) / (slow - fast)


@contradiction(
    "Do threads matter least, or most?",
    dims=(64,),
    claims=("E-05", "E-18"),
    needs=("mapping", "vector"),
    items={
        "rows": Item("rows of a block of Phase 6, one thread each", lambda f, d: phase6_rows(f), ""),
        "threads": Item(
            "threads of the block",
            lambda f, d: f.threads("fp16_phase6_iter2", d, **HALF_PRECISION),
            "threads",
            printed({64: "N424"}),
        ),
        "barrier": Item(
            "share of its time that a warp of Phase 6 waits at barriers",
            lambda f, d: waits(f, "fp16_phase6_iter2", "barrier", d, **HALF_PRECISION),
            "%",
        ),
        "mapping": Item(
            "Phase 6 with a warp a row, over Phase 6",
            speed("fp16_phase6_iter2_warp_per_row", "fp16_phase6_iter2", study="ablation", **HALF_PRECISION),
        ),
        "vector": Item(
            "Phase 4 over Phase 4 with loads of one half",
            speed("fp16_phase4", "fp16_phase4_scalar_loads", study="ablation", **HALF_PRECISION),
        ),
    },
    because=(
        "Of a block's {threads} {rows} have a row, and a warp waits at barriers {barrier} of its time.",
        "With a warp a row Phase 6 {mapping:as} the version with a thread a row.",
        "Phase 4 {vector:as} the version with loads of one half at a time.",
    ),
)
def threads(found: Findings) -> str:
    mapping, vector = found["mapping"], found["vector"]
    first = mapping.values[64].value > vector.values[64].value
    return "The diagnosis: threads before vector loads" if first else "The order: vector loads before threads"


def phase6_rows(facts: Facts) -> float:
    """Query rows of a block of Phase 6."""
    rows, heads = (facts.size("fp16_phase6_iter2", name, 64, **HALF_PRECISION) for name in ("seq_q", "heads"))
    return rows * heads / facts.blocks("fp16_phase6_iter2", 64, **HALF_PRECISION)


@contradiction(
    "What share of Phase 4's time is memory?",
    dims=(64,),
    claims=("E-11", "E-12"),
    needs=("memory", "sync"),
    items={
        "first": Item("memory in the first list", lambda f, d: 100 * f.said("N450") / f.said("N446"), "%"),
        "second": Item("memory in the second list", lambda f, d: f.said("N455"), "%"),
        "memory": Item(
            "share of its time that a warp waits for global or local memory",
            lambda f, d: waits(f, "fp16_phase4", "long_scoreboard lg_throttle", d, **HALF_PRECISION),
            "%",
        ),
        "sync": Item(
            "share of its time that a warp waits at barriers",
            lambda f, d: waits(f, "fp16_phase4", "barrier", d, **HALF_PRECISION),
            "%",
            printed({64: "N454"}),
        ),
        "scores": Item(
            "share of the time that goes without Q·K",
            lambda f, d: _gone(f, "fp16_phase4_no_scores"),
            "%",
            lambda f, d: 100 * f.said("N447") / f.said("N446"),
        ),
        "softmax": Item(
            "share that goes without the softmax",
            lambda f, d: _gone(f, "fp16_phase4_no_softmax"),
            "%",
            lambda f, d: 100 * f.said("N448") / f.said("N446"),
        ),
        "product": Item(
            "share that goes without the product with V",
            lambda f, d: _gone(f, "fp16_phase4_no_values"),
            "%",
            lambda f, d: 100 * f.said("N449") / f.said("N446"),
        ),
    },
    because=(
        "Two lists of one report give memory {first} and {second} of the time.",
        "Here a warp waits for memory {memory} of its time, and at barriers {sync}, for which the second list has "
        "{sync:printed} and the first nothing.",
        "Without Q·K {scores} of the time goes, without the softmax {softmax}, without the product with V {product}; "
        "the first list has {scores:printed}, {softmax:printed} and {product:printed}.",
    ),
)
def memory_share(found: Findings) -> str:
    memory, first, second = (found[key].values[64].value for key in ("memory", "first", "second"))
    which = "The second list is nearer" if abs(memory - second) < abs(memory - first) else "The first list is nearer"
    return f"{which}; most of the wait is at barriers" if found["sync"].above(HALF) else which


def _gone(facts: Facts, without: str) -> Any:
    """The share of Phase 4's time, in per cent, that goes in the version `without` something."""
    whole, rest = (facts.us(name, 64, study="ablation", **HALF_PRECISION) for name in ("fp16_phase4", without))
    return 100 * (whole - rest) / whole


@contradiction(
    "Should only embeddings that do not depend on the values be fused?",
    dims=(512, 2048),
    claims=("B-08", "C-26"),
    needs=("sinusoidal", "rope"),
    items={
        "sinusoidal": Item(
            "sinusoidal V5, independent of the values, over separate kernels",
            speed("sinusoidal_v5", "sinusoidal_separate_float4"),
        ),
        "rope": Item(
            "RoPE V4, dependent on them, over separate kernels", speed("rope_v4", "rope_separate", rotary="full")
        ),
    },
    because=("Sinusoidal V5 {sinusoidal:as} separate kernels that load as it does, RoPE V4 {rope:as} its own.",),
)
def only_independent(found: Findings) -> str:
    sinusoidal, rope = found["sinusoidal"], found["rope"]
    if sinusoidal.above(TIE) and rope.below(1):
        return "The rule"
    return "Not the rule: fused in full, both lose" if sinusoidal.below(1) and rope.below(1) else "Not the rule"


# ---------------------------------------------------------------- numbers that do not fit together


@contradiction(
    "Which attention kernel is the fastest?",
    dims=SHAPES,
    claims=("A-07", "A-14"),
    needs=("here",),
    items={
        "log": Item(
            "two passes with float4 loads over the online kernel, by the log's times",
            printed({512: ("N217", "X013"), 2048: ("N220", "X014"), 4096: ("N223", "X015"), 8192: ("N226", "X016")}),
        ),
        "here": Item("the same, here", speed("attention_two_pass_float4", "attention_online")),
    },
    because=(
        "The summary calls the online kernel its best and reports the rates of two passes with float4 loads.",
        "By the log's times the latter {log:as} the best; here it {here:as} the best.",
    ),
)
def fastest(found: Findings) -> str:
    if found["here"].above(1):
        return "The log's"
    return "The log's on its card, the summary's here" if found["log"].above(1) else "The summary's"


@contradiction(
    "How much traffic do separate kernels add?",
    dims=(2048,),
    claims=("B-15", "B-20"),
    needs=("written",),
    items={
        "written": Item(
            "written as embedded Q and K, a call",
            lambda f, d: 32 * (_written(f, d, 0) + _written(f, d, 1)) / 1e6,
            "MB",
            lambda f, d: f.said("N313"),
        ),
        "share": Item(
            "the write of embedded Q, of the analysis's own items",
            lambda f, d: 100 * f.said("N063") / sum(f.said(row) for row in ("N059", "N060", "N061", "N062")),
            "%",
            lambda f, d: f.said("N065"),
        ),
        "asked": Item(
            "the same, of all that the kernels ask for",
            lambda f, d: (
                100
                * _written(f, d, 0)
                / sum(f.count("sinusoidal_separate_float4", f"global.{way}.sectors", d) for way in ("read", "write"))
            ),
            "%",
        ),
    },
    because=(
        "The write-up's {written:printed} are the writes of one head; a call writes {written}, and reads them again.",
        "By the analysis's own items the write of Q is {share} of the traffic, not {share:printed}; of all that the "
        "kernels ask for, K and V read again for every query, it is {asked}.",
    ),
)
def traffic(found: Findings) -> str:
    return "One of the numbers" if _same(found["written"]) or _same(found["share"]) else "Neither number"


def _written(facts: Facts, hdim: int, launch: int) -> float:
    return facts.count("sinusoidal_separate_float4", "global.write.sectors", hdim, launch=launch)


@contradiction(
    "Can one tile take what the report says, and the whole what it says?",
    dims=(64,),
    claims=("E-17",),
    items={
        "sum": Item(
            "all tiles of Q·K at the printed price, over the whole of Phase 4",
            lambda f, d: _tiles(f) * f.said("N478") / f.said("N446"),
        ),
        "one": Item("one such product on the device", lambda f, d: f.ceiling("one_tile_gemm_us"), "µs"),
        "launch": Item(
            "one such product, launched each time",
            lambda f, d: f.ceiling("one_tile_gemm_launch_us"),
            "µs",
            lambda f, d: 1000 * f.said("N478"),
        ),
        "all": Item("all of them in one launch", lambda f, d: f.ceiling("all_tiles_gemm_us"), "µs"),
    },
    because=(
        "At {launch:printed} a tile the tiles of Q·K alone would take {sum} the time of the whole of Phase 4.",
        "Here one such product takes {one} on the device and {launch} when launched each time; all in one launch take "
        "{all}.",
    ),
)
def tile(found: Findings) -> str:
    return "The whole: the price of a tile is that of a launch" if found["sum"].above(1) else "Both"


def _tiles(facts: Facts) -> float:
    """Tiles of 32 queries and 64 keys that Q·K of the status report's problem has."""
    queries, keys, heads = (
        facts.size("fp16_phase4", name, 64, **HALF_PRECISION) for name in ("seq_q", "seq_k", "heads")
    )
    return queries / 32 * keys / 64 * heads
