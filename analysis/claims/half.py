"""Claims of the documents on half precision, and what decides it."""

from typing import Any

from ..evidence import Evidence, said
from .claim import Tests, cause, closes, count, headline, number, speed, undecided, universal
from .measures import BUSY, over

PHASE_4, CAUSAL, ITER_1, ITER_2 = "fp16_phase4", "fp16_phase4_causal", "fp16_phase6_iter1", "fp16_phase6_iter2"
SHAPE: dict[str, Any] = {"hdim": 64, "seq_q": 512}  # that the report times


@number
def e01(e: Evidence) -> Tests:
    """Phase 4 takes 1,028 µs and is 2.79 times as fast as the minimal kernel."""
    yield speed(e, PHASE_4, "fp16_minimal", **SHAPE, published="N482")


@number
def e02(e: Evidence) -> Tests:
    """Phase 6 takes 1,776 µs, 1.73 times as long as Phase 4."""
    yield headline(
        "Phase 6 over Phase 4 as they were measured, the one causal, the other without a mask",
        e.time(PHASE_4, **SHAPE) / e.time(ITER_2, **SHAPE),
        published="N408",
    )


@cause
def e03(e: Evidence) -> Tests:
    """Iteration 1 is 79 % slower because 2,112 floats a thread overflow the registers and spill."""
    yield headline(
        "iteration 1 over Phase 4 as they were measured, the one causal, the other without a mask",
        e.time(PHASE_4, **SHAPE) / e.time(ITER_1, **SHAPE),
        published=1 / (1 + said("N420") / 100),
        part="79 % slower",
        kind="number",
    )
    yield from closes(e, ITER_1, "fp16_phase6_iter1_own_row", CAUSAL, **SHAPE, part="that is what spills cost")


@universal
def e04(e: Evidence) -> Tests:
    """Moving the accumulators to shared memory (iteration 2) takes them out of what a thread keeps for itself."""
    yield headline(
        "bytes of accumulators that a thread still keeps in memory of its own, one row of output aside",
        e.resource(ITER_2, "stack_bytes", **SHAPE),
        most=128,
        unit="B",
    )


@cause
def e05(e: Evidence) -> Tests:
    """256 threads for 32 rows, 0.125 rows a thread, leave most threads idle or in each other's way."""
    yield speed(
        e, "fp16_phase6_iter2_32_threads", ITER_2, **SHAPE, least=0.97, part="most threads are idle", kind="universal"
    )
    yield from closes(e, ITER_2, "fp16_phase6_iter2_32_threads", CAUSAL, **SHAPE, part="that makes it slow")


@cause
def e06(e: Evidence) -> Tests:
    """Phase 6 is slower because it uses more shared memory, 28 KB and more, which causes bank conflicts."""
    yield headline(
        "shared memory of Phase 6 over that of Phase 4",
        over(e.resource, ITER_2, PHASE_4, "shared_bytes", **SHAPE),
        least=1.03,
        part="more shared memory",
        kind="universal",
    )
    yield from closes(e, ITER_2, "fp16_phase6_iter2_padded", CAUSAL, **SHAPE, part="bank conflicts make it slower")


@universal
def e07(e: Evidence) -> Tests:
    """Phase 6 synchronises more than Phase 4."""
    yield headline(
        "barriers of Phase 6 over those of Phase 4", over(e.count, ITER_2, PHASE_4, "barriers", **SHAPE), least=1.03
    )


@count
def e08(e: Evidence) -> Tests:
    """Phase 4 has 2 to 4 barriers a tile."""
    yield headline(
        "barriers for each of a block's 8 tiles, the one before them aside",
        (e.count(PHASE_4, "barriers", **SHAPE) / e.blocks(PHASE_4, **SHAPE) - 1) / 8,
        between=("N416", "N417"),
        unit="a tile",
    )


@universal
def e09(e: Evidence) -> Tests:
    """Phase 4 is 100 % correct."""
    yield headline(
        "races and reads of memory that nobody wrote",
        e.hazards(PHASE_4, "race", **SHAPE) + e.hazards(PHASE_4, "uninitialised", **SHAPE),
        equals=0,
    )


@universal
def e10(e: Evidence) -> Tests:
    """Phase 6 is correct, its largest difference 0.000977 is below 0.001."""
    yield headline(
        "largest error on uniform input, as the document draws it",
        e.error(ITER_2, **SHAPE, inputs="uniform"),
        most="N480",
    )


@count
def e11(e: Evidence) -> Tests:
    """Of Phase 4's time Q times K takes 400 µs, softmax 200, the product with V 300 and memory 128."""
    whole = e.time(PHASE_4, **SHAPE)
    yield headline(
        "share of the time that goes without a part, over the estimated share",
        {
            part: (whole - e.time(version, **SHAPE)) / whole / (said(row) / said("N446"))
            for part, version, row in (
                ("Q times K", "fp16_phase4_no_scores", "N447"),
                ("softmax", "fp16_phase4_no_softmax", "N448"),
                ("the product with V", "fp16_phase4_no_values", "N449"),
            )
        },
        between=(1 / 1.1, 1.1),
    )


@universal
def e12(e: Evidence) -> Tests:
    """68 % of Phase 4's time is scalar arithmetic, 19 % exponentials, 8 % synchronisation and 5 % memory, so it is
    bound by compute."""
    yield headline(
        "throughput of an SM's busiest unit",
        e.counter(PHASE_4, "sm__throughput.avg.pct_of_peak_sustained_elapsed", **SHAPE),
        least=BUSY,
        unit="% of peak",
    )


@universal
def e13(e: Evidence) -> Tests:
    """Vector loads can bring 5 % at most, since they matter only to a kernel bound by memory."""
    yield headline(
        "Phase 4 over the same with scalar loads, both assembled by ptxas",
        e.speedup(PHASE_4, "fp16_phase4_scalar_loads", **SHAPE),
        most=1 + said("N456") / 100,
    )


@number
def e14(e: Evidence) -> Tests:
    """Tensor cores would make both products 5 times as fast, 468 µs in all."""
    yield speed(e, "fp16_phase4_mma", PHASE_4, **SHAPE, published=said("N470") / said("N469"))


@number
def e15(e: Evidence) -> Tests:
    """Better algorithms would take 600 to 700 µs, and small changes, vector loads or tiles of 64 x 64 and 64 x 32, 800
    to 900 µs."""
    yield headline(
        "over Phase 4",
        {v: e.speedup(v, PHASE_4, **SHAPE) for v in ("fp16_phase4_64x64", "fp16_phase4_64x32")},
        published_range=(said("N488") / said("N487"), said("N488") / said("N486")),
    )


@undecided
def e16(e: Evidence) -> Tests:
    """Libraries take 200 to 400 µs, where Phase 4 takes 1,028."""
    yield headline(
        "times of libraries on the card of the report, an L4",
        "a library's time is that of its release and of a card's tensor cores, and neither is an L4's here; the report "
        "names no release; FlashAttention-2 or cuDNN on an L4 would decide it",
        least=0,
    )


@universal
def e17(e: Evidence) -> Tests:
    """CUTLASS takes 11.3 µs a tile, which makes a reference."""
    yield headline(
        "of the time of a call for one such product (PyTorch's), the share that the GPU takes",
        e.ceiling("one_tile_gemm_us") / e.ceiling("one_tile_gemm_launch_us"),
        least=1 / 1.1,
        unit="x",
    )


@universal
def e18(e: Evidence) -> Tests:
    """What matters is, in this order, the algorithm, the memory pattern, vector loads, and the number of threads."""
    algorithm, pattern, threads = (
        e.speedup(f"fp16_phase4_{name}", PHASE_4, **SHAPE) for name in ("mma", "padded", "all_threads")
    )
    vectors = e.speedup(PHASE_4, "fp16_phase4_scalar_loads", **SHAPE)
    yield headline(
        "gain of the first over that of the second",
        {
            "the algorithm (tensor cores) and the memory pattern (padded rows)": algorithm / pattern,
            "the memory pattern (padded rows) and vector loads": pattern / vectors,
            "vector loads and more threads (all threads at the scores)": vectors / threads,
        },
        least=1,
    )
