"""What the documents claim of half precision, and what decides it."""

from __future__ import annotations

from typing import Any

from ..evidence import Evidence, said
from .claim import PHASE_6, Tests, claim, effect, headline

SHAPE: dict[str, Any] = {"hdim": 64, "seq_q": 512}  # that the report times
ABLATION: dict[str, Any] = {"study": "ablation", **SHAPE}


@claim(
    "E-01",
    kind="number",
    says="Phase 4 takes 1,028 us and is 2.79 times as fast as the minimal kernel.",
    quote="2.79× speedup",
    where=[
        (PHASE_6, "Phase 4 (Proven Baseline); line 28"),
        (PHASE_6, "Option 1; line 190"),
        (PHASE_6, "What We've Achieved; line 274"),
    ],
)
def e01(e: Evidence) -> Tests:
    yield headline(
        "Phase 4 over the minimal kernel, neither with a mask",
        e.speedup("fp16_phase4", "fp16_minimal", **SHAPE),
        published="N482",
    )


@claim(
    "E-02",
    kind="number",
    says="Phase 6 takes 1,776 us, 1.73 times as long as Phase 4.",
    quote="1.73× **SLOWER** than Phase 4",
    where=[(PHASE_6, "Executive Summary; line 13"), (PHASE_6, "Phase 6 Iteration 2; line 40")],
)
def e02(e: Evidence) -> Tests:
    yield headline(
        "Phase 6 over Phase 4 as they were measured, the one causal, the other without a mask",
        e.time("fp16_phase4", **SHAPE) / e.time("fp16_phase6_iter2", **SHAPE),
        published="N408",
    )


@claim(
    "E-03",
    kind="cause",
    says="Iteration 1 is 79 % slower because 2,112 floats a thread overflow the registers and spill.",
    quote="Severe register spillage",
    where=[(PHASE_6, "Phase 6 Iteration 1; lines 33-37"), (PHASE_6, "Register Pressure Bug; lines 65-76")],
    contradicts=("E-04",),
)
def e03(e: Evidence) -> Tests:
    yield headline(
        "share of the gap to Phase 4 that goes when a thread keeps only its own row",
        e.share_closed("fp16_phase6_iter1", "fp16_phase6_iter1_own_row", "fp16_phase4_causal", **ABLATION),
        least=0.5,
    )
    yield effect(
        "iteration 1 is slower than Phase 4, both causal",
        e.speedup("fp16_phase6_iter1", "fp16_phase4_causal", **ABLATION),
        most=0.97,
    )


@claim(
    "E-04",
    kind="universal",
    says="Moving the accumulators to shared memory (iteration 2) takes them out of what a thread keeps for itself.",
    quote="Moved accumulators to shared memory",
    where=[(PHASE_6, "Phase 6 Iteration 2; line 41"), (PHASE_6, "Successfully Implemented; line 54")],
    contradicts=("E-03",),
)
def e04(e: Evidence) -> Tests:
    yield headline(
        "bytes of accumulators that a thread still keeps in memory of its own, one row of output aside",
        e.resource("fp16_phase6_iter2", "stack_bytes", **SHAPE),
        most=128,
        unit="B",
    )


@claim(
    "E-05",
    kind="universal",
    says="256 threads for 32 rows, 0.125 rows a thread, leave most threads idle or in each other's way.",
    quote="Most threads idle or fight over few rows",
    where=[
        (PHASE_6, "Root Causes; line 17"),
        (PHASE_6, "Phase 6 Iteration 2; line 43"),
        (PHASE_6, "What Didn't Work; line 59"),
        (PHASE_6, "Thread Configuration Mismatch; lines 78-82"),
    ],
    contradicts=("E-18",),
)
def e05(e: Evidence) -> Tests:
    yield headline(
        "224 threads are idle, 32 alone are as fast",
        e.speedup("fp16_phase6_iter2_32_threads", "fp16_phase6_iter2", **ABLATION),
        least=0.97,
        part="most threads are idle",
    )
    yield headline(
        "share of the gap to Phase 4 that stays with padded rows, the threads idle as before",
        1 - e.share_closed("fp16_phase6_iter2", "fp16_phase6_iter2_padded", "fp16_phase4_causal", **ABLATION),
        least=0.5,
        part="that makes it slow",
        kind="cause",
    )
    yield effect(
        "Phase 6 is slower than Phase 4, both causal",
        e.speedup("fp16_phase6_iter2", "fp16_phase4_causal", **ABLATION),
        most=0.97,
        part="that makes it slow",
    )


@claim(
    "E-06",
    kind="cause",
    says="Phase 6 is slower because it uses more shared memory, 28 KB and more, which causes bank conflicts.",
    quote="28KB+ shared memory → bank conflicts",
    where=[
        (PHASE_6, "Root Causes; line 18"),
        (PHASE_6, "Phase 6 Iteration 2; line 44"),
        (PHASE_6, "Shared Memory Pressure; lines 84-91"),
        (PHASE_6, "Technical Insights; line 149"),
    ],
)
def e06(e: Evidence) -> Tests:
    yield headline(
        "shared memory of Phase 6 over that of Phase 4",
        e.resource("fp16_phase6_iter2", "shared_bytes", **SHAPE) / e.resource("fp16_phase4", "shared_bytes", **SHAPE),
        least=1.03,
        part="more shared memory",
        kind="universal",
    )
    yield headline(
        "share of the gap to Phase 4 that goes with padded rows",
        e.share_closed("fp16_phase6_iter2", "fp16_phase6_iter2_padded", "fp16_phase4_causal", **ABLATION),
        least=0.5,
        part="bank conflicts make it slower",
    )
    yield effect(
        "Phase 6 is slower than Phase 4, both causal",
        e.speedup("fp16_phase6_iter2", "fp16_phase4_causal", **ABLATION),
        most=0.97,
        part="bank conflicts make it slower",
    )


@claim(
    "E-07",
    kind="universal",
    says="Phase 6 synchronises more than Phase 4.",
    quote="More synchronization points",
    where=[(PHASE_6, "Root Causes; line 19"), (PHASE_6, "Phase 6 Iteration 2; line 45")],
)
def e07(e: Evidence) -> Tests:
    yield headline(
        "barriers of Phase 6 over those of Phase 4",
        e.count("fp16_phase6_iter2", "barriers", **SHAPE) / e.count("fp16_phase4", "barriers", **SHAPE),
        least=1.03,
    )


@claim(
    "E-08",
    kind="count",
    says="Phase 4 has 2 to 4 barriers a tile.",
    quote="2-4 syncs/tile",
    where=[(PHASE_6, "Phase 4 (Proven Baseline); line 30")],
)
def e08(e: Evidence) -> Tests:
    yield headline(
        "barriers for each of a block's 8 tiles, the one before them aside",
        (e.count("fp16_phase4", "barriers", **SHAPE) / e.blocks("fp16_phase4", **SHAPE) - 1) / 8,
        between=("N416", "N417"),
        unit="a tile",
    )


@claim(
    "E-09",
    kind="universal",
    says="Phase 4 is 100 % correct.",
    quote="100%",
    where=[(PHASE_6, "Phase 4 (Proven Baseline); line 31"), (PHASE_6, "Working Kernels; line 168")],
)
def e09(e: Evidence) -> Tests:
    yield headline(
        "races and reads of memory that nobody wrote",
        e.hazards("fp16_phase4", "race", **SHAPE) + e.hazards("fp16_phase4", "uninitialised", **SHAPE),
        equals=0,
    )


@claim(
    "E-10",
    kind="universal",
    says="Phase 6 is correct, its largest difference 0.000977 is below 0.001.",
    quote="max_diff=0.000977",
    where=[(PHASE_6, "Evidence; line 178"), (PHASE_6, "Working Kernels; line 169")],
)
def e10(e: Evidence) -> Tests:
    yield headline(
        "largest error on uniform input, as the document draws it",
        e.error("fp16_phase6_iter2", **SHAPE, inputs="uniform"),
        most="N480",
    )


@claim(
    "E-11",
    kind="count",
    says="Of Phase 4's time Q times K takes 400 us, softmax 200, the product with V 300 and memory 128.",
    quote="Breakdown estimate",
    where=[(PHASE_6, "Baseline Analysis; lines 97-102")],
    contradicts=("E-12",),
)
def e11(e: Evidence) -> Tests:
    whole = e.time("fp16_phase4", **ABLATION)
    yield headline(
        "share of the time that goes without a part, over the estimated share",
        {
            part: (whole - e.time(version, **ABLATION)) / whole / (said(row) / said("N446"))
            for part, version, row in (
                ("Q times K", "fp16_phase4_no_scores", "N447"),
                ("softmax", "fp16_phase4_no_softmax", "N448"),
                ("the product with V", "fp16_phase4_no_values", "N449"),
            )
        },
        between=(1 / 1.1, 1.1),
    )


@claim(
    "E-12",
    kind="universal",
    says=(
        "68 % of Phase 4's time is scalar arithmetic, 19 % exponentials, 8 % synchronisation and 5 % memory, so "
        "it is bound by compute."
    ),
    quote="Phase 4 is **compute-bound** (68% scalar math)",
    where=[(PHASE_6, "Vectorization Impact; lines 108-115"), (PHASE_6, "Key Insight; lines 276-279")],
    contradicts=("A-09", "E-11"),
)
def e12(e: Evidence) -> Tests:
    yield headline(
        "throughput of an SM's busiest unit",
        e.counter("fp16_phase4", "sm__throughput.avg.pct_of_peak_sustained_elapsed", **SHAPE),
        least=60,
        unit="% of peak",
    )


@claim(
    "E-13",
    kind="universal",
    says="Vector loads can bring 5 % at most, since they matter only to a kernel bound by memory.",
    quote="Vectorization alone",
    where=[(PHASE_6, "Vectorization Impact; lines 104-115"), (PHASE_6, "Lessons Learned; lines 146 and 154")],
)
def e13(e: Evidence) -> Tests:
    yield headline(
        "Phase 4 as it is over Phase 4 with loads of one half at a time",
        e.speedup("fp16_phase4", "fp16_phase4_scalar_loads", **ABLATION),
        most=1 + said("N456") / 100,
    )


@claim(
    "E-14",
    kind="number",
    says="Tensor cores would make both products 5 times as fast, 468 us in all.",
    quote="468 μs",
    where=[(PHASE_6, "What Would Actually Help; lines 124-128")],
    contradicts=("A-17",),
)
def e14(e: Evidence) -> Tests:
    yield headline(
        "Phase 4 with both products on tensor cores over Phase 4",
        e.speedup("fp16_phase4_mma", "fp16_phase4", **ABLATION),
        published=said("N470") / said("N469"),
    )


@claim(
    "E-15",
    kind="number",
    says=(
        "Better algorithms would take 600 to 700 us, and small changes, vector loads or tiles of 64 x 64 and 64 x "
        "32, 800 to 900 us."
    ),
    quote="1,028 → 800-900 μs",
    where=[(PHASE_6, "What Would Actually Help; lines 130-134"), (PHASE_6, "Option 2; lines 199-209")],
)
def e15(e: Evidence) -> Tests:
    yield headline(
        "over Phase 4",
        {v: e.speedup(v, "fp16_phase4", **SHAPE) for v in ("fp16_phase4_64x64", "fp16_phase4_64x32")},
        published_range=(said("N488") / said("N487"), said("N488") / said("N486")),
    )


@claim(
    "E-16",
    kind="universal",
    says="Libraries take 200 to 400 us, where Phase 4 takes 1,028.",
    quote="200-400 μs (proven)",
    where=[(PHASE_6, "What Would Actually Help; lines 136-139"), (PHASE_6, "Option 3; lines 217-224")],
)
def e16(e: Evidence) -> Tests:
    yield headline(
        "PyTorch's SDPA over Phase 4",
        {
            "its own choice": e.speedup("torch_sdpa_fp16", "fp16_phase4", **SHAPE),
            "FlashAttention-2": e.speedup("torch_sdpa_fp16_flash", "fp16_phase4", **SHAPE),
            "cuDNN": e.speedup("torch_sdpa_fp16_cudnn", "fp16_phase4", **SHAPE),
        },
        between=(said("N446") / said("N474") / 1.1, said("N446") / said("N473") * 1.1),
    )


@claim(
    "E-17",
    kind="universal",
    says="CUTLASS takes 11.3 us a tile, which makes a reference.",
    quote="11.3 μs per tile",
    where=[(PHASE_6, "Infrastructure; line 172"), (PHASE_6, "What We've Achieved; line 275")],
)
def e17(e: Evidence) -> Tests:
    yield headline(
        "1,024 such products in one call, over 1,024 times the time of one alone",
        e.ceiling("all_tiles_gemm_us") / (16 * 8 * 8 * e.ceiling("one_tile_gemm_us")),
        least=1 / 1.1,
        unit="x",
    )


@claim(
    "E-18",
    kind="universal",
    says=(
        "What matters is, in this order, the algorithm, the memory pattern, vector loads, and the number of threads."
    ),
    quote="Optimization Hierarchy",
    where=[(PHASE_6, "Optimization Hierarchy; lines 151-155")],
    contradicts=("E-05",),
)
def e18(e: Evidence) -> Tests:
    algorithm, pattern, threads = (
        e.speedup(f"fp16_phase4_{name}", "fp16_phase4", **ABLATION) for name in ("mma", "padded", "all_threads")
    )
    vectors = e.speedup("fp16_phase4", "fp16_phase4_scalar_loads", **ABLATION)
    yield headline(
        "the first gains at least as much as the second",
        {
            "the algorithm (tensor cores) and the memory pattern (padded rows)": algorithm / pattern,
            "the memory pattern (padded rows) and vector loads": pattern / vectors,
            "vector loads and more threads (all threads at the scores)": vectors / threads,
        },
        least=1,
    )
