"""Claims of the documents on attention without an embedding, and what decides it."""

from ..evidence import Estimates, Evidence, said, stated
from .claim import YES_OR_NO, Tests, cause, closes, count, effect, headline, loses, number, speed, universal
from .measures import BUSY, FIXED, FLOAT4, ONLINE, SCALAR, SEPARATE, busiest_memory_percent, fp32_percent, over

BASELINE, TWO_PASS, TENSOR_V2 = "attention_baseline", "attention_two_pass_float4", "attention_tensor_core_v2"
DIMS = (512, 2048, 4096, 8192)  # head dims that a time is printed for


def filled_over(
    e: Evidence, version: str, hdim: tuple[int, ...], many: str = "filled", few: str = "controlled"
) -> Estimates:
    """The rate of a version with the many blocks of one study over that with the few of another, of one run."""
    both = e.together(many, few)
    return both.tflops(version, study=many, hdim=hdim) / both.tflops(version, study=few, hdim=hdim)


@number
def a01(e: Evidence) -> Tests:
    """The online-softmax kernel is 1.91, 2.02, 1.48 and 1.03 times as fast as the baseline at head dim 512, 2048, 4096
    and 8192."""
    yield speed(e, ONLINE, BASELINE, DIMS, published=("N215", "N218", "N221", "N224"))


@cause
def a02(e: Evidence) -> Tests:
    """That gain comes from online softmax over tiles of 64 keys."""
    yield from closes(e, BASELINE, "attention_online_scalar", FIXED, (512, 2048, 4096))


@number
def a03(e: Evidence) -> Tests:
    """Warp reductions instead of atomics make maximum and sum faster."""
    yield headline(
        "warp reductions over atomics, both with float4 loads",
        e.speedup(TWO_PASS, "attention_atomics_float4", hdim=DIMS),
        direction="faster",
    )


@count
def a04(e: Evidence) -> Tests:
    """float4 loads give 4 times the memory throughput per instruction, and better bandwidth."""
    yield headline(
        "sectors that the same bytes of K take, scalar loads over float4",
        over(e.count, SCALAR, FLOAT4, "global.read.sectors.k_embedded", hdim=(512, 2048), launch=2),
        equals="N264",
    )


@universal
def a05(e: Evidence) -> Tests:
    """Memory accesses are coalesced, so that the L1 cache is used well."""
    yield headline(
        "sectors that the loads of K take, over the fewest that hold their bytes",
        8 * e.count(ONLINE, "global.read.sectors.k", hdim=DIMS) / (e.size(ONLINE, "flops", hdim=DIMS) / 4),
        most=1.1,
        unit="x",
        part="coalesced",
    )
    hits = e.counter(ONLINE, "l1tex__t_sector_hit_rate.pct", hdim=DIMS)
    yield headline("L1 hit rate", hits, least=50, unit="%", part="L1 is used well")


@universal
def a06(e: Evidence) -> Tests:
    """The best version, called fixed, passes all tests, is numerically stable and ready for production."""
    yield headline("outputs that are not a number", 100 * e.nan_share(ONLINE, hdim=DIMS), equals=0, unit="%")


@universal
def a07(e: Evidence) -> Tests:
    """attention_kernel.cu, the online kernel, is the fastest version and the one to use."""
    yield headline(
        "the online kernel, with its reductions corrected, over a kernel that is right",
        {v: e.speedup(FIXED, v, hdim=DIMS) for v in ("attention_atomics", "attention_atomics_float4", TWO_PASS)},
        least=0.97,
    )


@universal
def a08(e: Evidence) -> Tests:
    """attention_kernel_large_dims.cu is the same kernel in a file of its own."""
    counted = {
        "barriers": "barriers",
        "stores to global memory": "inst.st.global",
        "loads from global memory": "inst.ld.global",
    }
    yield headline(
        "instructions at head dim 2048, over those of the online kernel",
        {what: over(e.count, TWO_PASS, ONLINE, counter, hdim=2048) for what, counter in counted.items()},
        equals=1,
        unit="x",
    )


@universal
def a09(e: Evidence) -> Tests:
    """The kernel is bound by memory, not by compute. It has 0.47 to 0.50 FLOP/byte and would need 74 (or more than
    100), about 150 times as many."""
    yield headline(
        "throughput of DRAM, L2 or L1, the highest",
        busiest_memory_percent(e, FIXED, hdim=DIMS),
        least=BUSY,
        unit="% of peak",
    )


@count
def a10(e: Evidence) -> Tests:
    """Only 4.7 % of the memory bandwidth is used, 93 of 2000 GB/s."""
    yield headline(
        "the same rate over the peak of the card that was used, from the write-up",
        100 * said("N235") / said("N296"),
        equals=4.7,
        digits=2,
        unit="%",
    )


@cause
def a11(e: Evidence) -> Tests:
    """Utilisation is low because there are only 16 to 256 blocks, K and V are read once per query, and a large head dim
    does not fit the cache."""
    yield headline(
        "rate with 16 to 32 times the blocks over that with those of the documents",
        {FIXED: filled_over(e, FIXED, (512, 2048)), TWO_PASS: filled_over(e, TWO_PASS, (8192,), "controlled", "log")},
        least=2,
    )
    yield effect(
        "percent of this GPU's FP32 peak that it reaches",
        {FIXED: fp32_percent(e, FIXED, hdim=(512, 2048)), TWO_PASS: fp32_percent(e, TWO_PASS, hdim=(8192,))},
        most=BUSY,
        unit="%",
    )


@cause
def a12(e: Evidence) -> Tests:
    """At head dim 8192 performance falls off a cliff, because K and V (1 MB) exceed the L2 cache and are fetched from
    DRAM again and again, at 87 of 360 GB/s."""
    yield headline(
        "bytes read from DRAM at head dim 8192, caches warm, over those of Q, K and V",
        e.counter(ONLINE, "dram__bytes_read.sum", hdim=8192) / (3 * 4 * 16 * 8192),
        least=2,
        unit="x",
    )
    yield effect(
        "rate at head dim 8192 over that at 4096, heads and queries as they were",
        {
            v: e.tflops(v, study="controlled", hdim=8192)[8192] / e.tflops(v, study="controlled", hdim=4096)[4096]
            for v in (ONLINE, FIXED, TWO_PASS)
        },
        most=0.9,
        unit="x",
    )


@count
def a13(e: Evidence) -> Tests:
    """The kernel reaches 2.16, 2.51, 4.26 and 0.69 TFLOPS at head dim 512, 2048, 4096 and 8192, best at 4096."""
    yield headline(
        "rate that the printed time and the shape give",
        e.size(ONLINE, "flops", hdim=DIMS) / stated(DIMS, "N301", "N303", "N305", "N307") / 1e9,
        equals=("N302", "N304", "N306", "N308"),
        digits=2,
        unit="TFLOPS",
    )


@count
def a14(e: Evidence) -> Tests:
    """The simple FP32 kernel with float4 loads reaches 0.76 to 0.86 TFLOPS up to head dim 2048."""
    yield headline(
        "rate that the documents' time of two passes with float4 loads and the shape give",
        e.size(TWO_PASS, "flops", hdim=DIMS[:2]) / stated(DIMS[:2], "X013", "X014") / 1e9,
        equals=("N265", "N266"),
        digits=2,
        unit="TFLOPS",
    )


@number
def a15(e: Evidence) -> Tests:
    """The FP16 tensor-core version takes 3 to 4 times as long."""
    yield speed(e, TENSOR_V2, TWO_PASS, DIMS, published_range=("N243", "N242"))


@cause
def a16(e: Evidence) -> Tests:
    """It is slower because of conversions between FP32 and FP16, the traffic of its tiles, and the latency of shared
    memory."""
    part = "tiles and shared memory"
    yield from closes(e, TENSOR_V2, "attention_tensor_core_v2_float_tiles", TWO_PASS, DIMS, part="conversions")
    yield headline(
        "share of the gap that stays when each query has a block of its own, tiles and shared memory as before",
        1 - e.share_closed(TENSOR_V2, "attention_tensor_core_v2_one_query", TWO_PASS, hdim=DIMS),
        least=0.5,
        part=part,
    )
    yield loses(e, TENSOR_V2, TWO_PASS, DIMS, part)


@universal
def a17(e: Evidence) -> Tests:
    """Tensor cores help only with matrices of 1024 x 1024 and more, data in FP16 and work bound by compute; here
    neither they nor any trick of computing helps, only less memory traffic."""
    tricks = {"mma": "tensor cores do not help", "all_warps": "nor does any trick of computing"}
    for name, part in tricks.items():
        yield speed(e, f"attention_two_pass_{name}", TWO_PASS, DIMS, most=1.1, part=part)


@universal
def a18(e: Evidence) -> Tests:
    """K, and V, cannot be cached in shared memory for several queries, since at most 11, 2 and 0 keys fit at head dim
    512, 2048 and 8192."""
    yield headline(
        "bytes that a block asks for whose 16 queries share tiles of K in slices of dims",
        e.shared_bytes(TENSOR_V2, hdim=(512, 2048, 8192)),
        least=49153,
        unit="B",
    )


@universal
def a19(e: Evidence) -> Tests:
    """48 KB of shared memory is a hard limit."""
    large = "attention_multi_query_227k"
    ran = e.status(large, "ok", hdim=(512, 4096)) + e.status(large, "wrong", hdim=(512, 4096))
    yield headline(
        "bytes of shared memory that a block asks for, and runs",
        {large: e.shared_bytes(large, hdim=(512, 4096)) * ran},
        between=(1, 49152),
        unit="B",
    )


@universal
def a20(e: Evidence) -> Tests:
    """Double buffering with cp.async needs more than 128 KB of shared memory and therefore cannot fit."""
    yield headline(
        "shared memory that it asks for",
        e.shared_bytes("attention_async_double_buffer", hdim=DIMS) / 1024,
        least="N259",
        unit="KiB",
        part="more than 128 KB as built",
    )
    yield headline(
        "bytes that it asks for in slices of dims",
        e.shared_bytes("attention_async_sliced", study="ablation", hdim=(512, 2048)),
        least=49153,
        unit="B",
        part="it cannot fit",
    )


@universal
def a21(e: Evidence) -> Tests:
    """Register tiling is wrong above head dim 2048 alone, because 256 threads with 8 registers cover 2048 elements."""
    yield headline(
        "it is as claimed",
        {
            "right": e.status("attention_register_tiling", "ok", hdim=(512, 2048)),
            "wrong": e.status("attention_register_tiling", "wrong", hdim=(4096, 8192)),
        },
        equals=1,
        unit=YES_OR_NO,
    )


@universal
def a22(e: Evidence) -> Tests:
    """If PyTorch's attention is about as fast, the kernel is near optimal; if it is much faster, it likely tiles as
    FlashAttention does, batches more, or calls cuBLAS."""
    yield headline(
        "two passes whose threads all work over the online kernel",
        e.speedup("attention_two_pass_all_warps", FIXED, hdim=DIMS),
        most=1.1,
    )


@universal
def a23(e: Evidence) -> Tests:
    """Larger batches and longer sequences use the GPU better."""
    yield headline(
        "rate with 32 times the heads over that with 4",
        {v: filled_over(e, v, (128, 512, 2048)) for v in (FIXED, TWO_PASS)},
        least=1.1,
        part="larger batches",
    )
    yield headline(
        "separate RoPE and its attention at head dim 128, rate with more queries and 8 heads over that with 64 and 4",
        {
            f"{v} queries": e.tflops(SEPARATE, study="beyond", hdim=128, heads=8, seq_q=v, causal=0)
            / e.tflops(SEPARATE, study="beyond", hdim=128, heads=4, seq_q=64)
            for v in (256, 1024, 2048, 4096)
        },
        least=1.1,
        part="longer sequences",
    )
