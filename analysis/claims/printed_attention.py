"""What stands beside the printed numbers of attention and half precision, where the columns do not say it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ..evidence import Estimate, Evidence, said
from .printed import Entry, each, same
from .validation import PASSING, hdims_timed

LOG, SIZES = (512, 2048, 4096, 8192), (512, 2048, 8192)
HALF: dict[str, Any] = {"hdim": 64, "seq_q": 512}
ABLATION: dict[str, Any] = {"study": "ablation", **HALF}


def work(e: Evidence) -> Iterator[Entry]:
    count, size, time = (partial(ask, hdim=8192) for ask in (e.count, e.size, e.time))
    yield from same(
        "N230 N285 N290",
        size("attention_online", "flops") / (2 * size("attention_online", "heads") * size("attention_online", "seq_q")),
        note="of one query",
        counted="FLOP of one query's scores, and of its product with V, head dim 8192",
    )
    yield from same(
        "N231 N288",
        4 * 8192 * (1 + size("attention_online", "seq_k")),
        note="one query and K",
        counted="bytes of one query and K, head dim 8192",
    )
    yield from same(
        "N232 N289",
        2 * size("attention_online", "seq_k") / (4 * (1 + size("attention_online", "seq_k"))),
        note="K counted for each query",
        counted="FLOP/byte of the scores",
        also={
            "of a call, bytes asked for": size("attention_online", "flops")
            / (32 * count("attention_online", "global.read.sectors global.write.sectors")),
            "of a call, every sector once": size("attention_online", "flops")
            / (32 * count("attention_online", "global.unique_sectors.read global.unique_sectors.write")),
        },
    )
    yield from same(
        "N234",
        e.size("attention_online", "flops", hdim=LOG)
        / (
            32
            * (
                e.count("attention_online", "global.unique_sectors.read", hdim=LOG)
                + e.count("attention_online", "global.unique_sectors.write", hdim=LOG)
            )
        ),
        note="of a call, every sector that it touches counted once",
        counted="FLOP/byte of the kernel",
    )
    yield from same("N286", 4 * 8192, note="one query")
    yield from same(
        "N287 N291 N252 N253",
        4 * size("attention_online", "seq_k") * 8192,
        note="16 keys",
        counted="bytes of K, of V, and of a tile of 16 keys, head dim 8192",
    )
    yield from same("N254 N309", 8 * size("attention_online", "seq_k") * 8192, note="K and V of a head")
    yield from same("N292", 4 * size("attention_online", "seq_k"))
    yield from same("N293", 4 * size("attention_online", "seq_k") * (8192 + 1), note="V and one query's weights")
    yield from same(
        "N294 N298",
        2 * 8192 / (4 * (8192 + 1)),
        note="V counted for each query",
        counted="FLOP/byte of the product with V",
    )
    yield from same(
        "N233",
        1000 * e.ceiling("fp32_tflops") / e.ceiling("read_gb_s"),
        unit="FLOP/B at which this GPU's DRAM and FP32 ceilings meet",
    )
    yield from same(
        "N297",
        1000 * said("N295") / said("N296"),
        note="the document's peaks",
        counted="FLOP/byte to be bound by compute on the write-up's card",
        also={"by this GPU's ceilings": 1000 * e.ceiling("fp32_tflops") / e.ceiling("read_gb_s")},
    )
    yield from same(
        "N299",
        1000 * said("N295") / said("N296") / said("N298"),
        note="the document's numbers",
        counted="how far below that the kernel is",
    )
    yield from same("N295 N397", e.ceiling("fp32_tflops"), note="this GPU, measured")
    yield from same("N296 N311 N398", e.ceiling("read_gb_s"), note="this GPU's DRAM, read, measured")
    yield from each(
        "N235 N310",
        *(
            32 * count(version, "global.read.sectors") / time(version) / 1000.0
            for version in ("attention_two_pass_float4", "attention_online")
        ),
        note="bytes asked for over time",
    )
    yield from each(
        "N237 N312",
        *(
            100 * 32 * count(version, "global.read.sectors") / time(version) / 1000.0 / e.ceiling("read_gb_s")
            for version in ("attention_two_pass_float4", "attention_online")
        ),
        unit="% of this GPU's DRAM ceiling, bytes asked for over time",
    )
    yield from each(
        "N238 N239 N269 N270 N278 N279",
        *(e.size("attention_online", "seq_q", hdim=hdim) for hdim in (8192, 512, 8192, 512, 8192, 512)),
    )
    yield from each("N240 N241", e.blocks("attention_online", hdim=(8192, 512)))
    yield from same(
        "N271",
        100 * 8 * size("attention_online", "seq_k") * 8192 / e.identity("l2_bytes"),
        unit="% of this GPU's L2 that K and V of a head take",
    )
    yield from same(
        "N283",
        Estimate.exact(min(hdims_timed("attention")), "published.csv"),
        note="of the head dims that the write-up prints a time for",
    )
    yield from same(
        "N284",
        Estimate.exact(max(hdims_timed("attention")), "published.csv"),
        note="of the head dims that the write-up prints a time for",
    )
    yield from same("N229 N280 N300", e.shared_bytes("attention_online", "scores", hdim=512) / 4)


def failures(e: Evidence) -> Iterator[Entry]:
    blocks, shared_bytes, size, status = (
        partial(ask, hdim=512) for ask in (e.blocks, e.shared_bytes, e.size, e.status)
    )
    yield from same(
        "N249",
        size("attention_multi_query_227k", "heads")
        * size("attention_multi_query_227k", "seq_q")
        / blocks("attention_multi_query_227k"),
    )
    yield from same(
        "N250",
        size("attention_tensor_core_v2", "heads")
        * size("attention_tensor_core_v2", "seq_q")
        / blocks("attention_tensor_core_v2"),
        note="of attention_tensor_core_v2",
    )
    yield from each(
        "N256 N257 N258",
        *(48000 // (8 * hdim) for hdim in SIZES),
        counted="keys of K and V that fit 48 KB, head dim 512, 2048, 8192",
        also={"in 49,152 B": [49152 // (8 * hdim) for hdim in SIZES]},
    )
    yield from same(
        "N259",
        shared_bytes("attention_async_double_buffer"),
        rule="least",
        counted="shared memory that cp.async asks for, head dim 512",
    )
    yield from each(
        "X052 X053 X054",
        *(
            e.shared_bytes(version, hdim=hdim)
            for version, hdim in (
                ("attention_multi_query_227k", 512),
                ("attention_async_double_buffer", 512),
                ("attention_tensor_core_v1", 2048),
            )
        ),
        counted="shared memory that the failed kernels ask for",
    )
    yield from same(
        "N260",
        512 * status("attention_register_tiling", "wrong"),
        note="the least head dim that is measured; 0 if right",
    )
    yield from same("N261", e.threads("attention_register_tiling", hdim=8192))
    yield from same(
        "N263",
        8
        * e.count("attention_register_tiling", "global.unique_sectors.write", hdim=8192)
        / (
            e.size("attention_register_tiling", "heads", hdim=8192)
            * e.size("attention_register_tiling", "seq_q", hdim=8192)
        ),
        note="floats that the kernel writes of a row of 8192",
        counted="elements that register tiling covers",
    )
    yield from same(
        "N262",
        8
        * e.count("attention_register_tiling", "global.unique_sectors.write", hdim=8192)
        / (
            e.size("attention_register_tiling", "heads", hdim=8192)
            * e.size("attention_register_tiling", "seq_q", hdim=8192)
        )
        / e.threads("attention_register_tiling", hdim=8192),
        note="floats that a thread writes of a row of 8192",
    )
    yield from same(
        "N264",
        (
            e.count("attention_baseline", "inst.ld.global", hdim=2048)
            - (8 * e.count("attention_baseline", "global.read.sectors.v", hdim=2048))
        )
        / (
            e.count("attention_two_pass_float4", "inst.ld.global", hdim=2048)
            - (8 * e.count("attention_two_pass_float4", "global.read.sectors.v", hdim=2048))
        ),
        note="loads of Q and K of the scalar baseline over those of two passes with float4",
    )
    yield from each("X027 X028 X029 X030", 100 * e.nan_share("attention_online", hdim=LOG))
    yield from each(
        "X025 X026",
        e.error("attention_online", hdim=(512, 2048)),
        unit="against float64, the worse of this book's two inputs",
    )
    yield from same(
        "N395 N399",
        *(e.error(version, hdim=hdim) for version, hdim in PASSING.items()),
        rule="most",
        note="the write-up's versions against float64, over the outputs that are finite",
    )
    yield from each("X055 X056 X057 X058", e.time("torch_sdpa", hdim=LOG))
    yield from each("X059 X060 X061 X062", e.time("torch_matmul_softmax", hdim=LOG))


def half(e: Evidence) -> Iterator[Entry]:
    blocks, count, counter, error, resource, shared_bytes, size, stalled, status, threads, time = (
        partial(ask, **HALF)
        for ask in (
            e.blocks,
            e.count,
            e.counter,
            e.error,
            e.resource,
            e.shared_bytes,
            e.size,
            e.stalled,
            e.status,
            e.threads,
            e.time,
        )
    )
    yield from same("N408", time("fp16_phase4") / time("fp16_phase6_iter2"), note="masks as they were measured")
    yield from each(
        "N420 N423 N437",
        *(
            time("fp16_phase4") / time(version)
            for version in ("fp16_phase6_iter1", "fp16_phase6_iter2", "fp16_phase6_iter1")
        ),
        note="masks as they were measured",
    )
    yield from each(
        "N409 N413 N424 N428 N429 N430 N439",
        *(
            threads(version)
            for version in (
                "fp16_phase6_iter2",
                "fp16_phase4",
                "fp16_phase6_iter2",
                "fp16_phase6_iter2",
                "fp16_phase4",
                "fp16_phase6_iter2",
                "fp16_phase6_iter2",
            )
        ),
    )
    yield from each(
        "N410 N414 N425 N431 N438",
        *(
            size(version, "heads") * 512 / blocks(version)
            for version in (
                "fp16_phase6_iter2",
                "fp16_phase4",
                "fp16_phase6_iter2",
                "fp16_phase6_iter2",
                "fp16_phase6_iter2",
            )
        ),
    )
    yield from same(
        "N415", shared_bytes("fp16_phase4", "scores") / 4 / (size("fp16_phase4", "heads") * 512 / blocks("fp16_phase4"))
    )
    yield from same(
        "N416 N417 X123",
        (count("fp16_phase4", "barriers") / blocks("fp16_phase4") - 1) / 8,
        note="of a block, over its 8 tiles; one comes before them",
        counted="barriers of Phase 4, a tile",
    )
    yield from same(
        "X124",
        (count("fp16_phase6_iter2", "barriers") / blocks("fp16_phase6_iter2") - 2) / 8,
        note="of a block, over 8 tiles; two come before them",
    )
    yield from same("N418", 100 * status("fp16_phase4", "ok"), note="100 if its check passes")
    yield from same(
        "N421 N435",
        resource("fp16_phase6_iter1", "stack_bytes") / 4,
        note="floats that a thread keeps in local memory",
        counted="accumulator of Phase 6, iteration 1, floats a thread",
    )
    yield from same(
        "N433 N434",
        resource("fp16_phase6_iter1", "stack_bytes") / 4 - 2048,
        note="floats that a thread keeps in local memory beside the accumulator",
    )
    yield from same(
        "N436",
        resource("fp16_phase6_iter1", "stack_bytes"),
        note="local memory of a thread",
        counted="bytes that a thread of Phase 6, iteration 1, keeps",
    )
    yield from same(
        "N426", count("fp16_phase6_iter2", "global.read.bytes_requested") / count("fp16_phase6_iter2", "inst.ld.global")
    )
    yield from same(
        "N427",
        count("fp16_phase6_iter2", "global.read.bytes_requested") / count("fp16_phase6_iter2", "inst.ld.global") / 2,
    )
    yield from same(
        "N440",
        size("fp16_phase6_iter2", "heads") * 512 / blocks("fp16_phase6_iter2") / threads("fp16_phase6_iter2"),
        counted="rows a thread of Phase 6",
    )
    yield from each(
        "N441 N442 N443 N444",
        *(shared_bytes("fp16_phase6_iter2", array) for array in ("accumulator", "scores", "key_value", "query")),
        counted="shared memory of Phase 6, by array",
    )
    yield from each(
        "N445 X120 X121 X122",
        *(
            shared_bytes(version)
            for version in ("fp16_phase6_iter2", "fp16_phase4", "fp16_phase6_iter2", "fp16_phase6_iter1")
        ),
        counted="shared memory of Phase 6 and Phase 4",
    )
    yield from each(
        "N447 N448 N449 N461 N464",
        *(
            e.time("fp16_phase4", **ABLATION) - e.time(version, **ABLATION)
            for version in (
                "fp16_phase4_no_scores",
                "fp16_phase4_no_softmax",
                "fp16_phase4_no_values",
                "fp16_phase4_no_scores",
                "fp16_phase4_no_values",
            )
        ),
        note="the time that goes when it is left out",
    )
    yield from same(
        "N467",
        2 * e.time("fp16_phase4", **ABLATION)
        - e.time("fp16_phase4_no_scores", **ABLATION)
        - e.time("fp16_phase4_no_values", **ABLATION),
        note="the times that go when either is left out",
    )
    yield from each(
        "X113 X114 X115",
        *(
            100 * (1 - (e.time(version, **ABLATION) / e.time("fp16_phase4", **ABLATION)))
            for version in ("fp16_phase4_no_scores", "fp16_phase4_no_values", "fp16_phase4_no_softmax")
        ),
        unit="% of the time goes when it is left out",
    )
    yield from same("N454 X116", 100 * stalled("fp16_phase4", "barrier"), unit="% of its time a warp waits at barriers")
    yield from same(
        "N455 X117",
        100 * stalled("fp16_phase4", "long_scoreboard lg_throttle"),
        unit="% of its time a warp waits for global or local memory",
    )
    yield from same(
        "N452 N509",
        100
        / 32
        * (
            counter("fp16_phase4", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum")
            + counter("fp16_phase4", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum")
            + counter("fp16_phase4", "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum")
        )
        / counter("fp16_phase4", "smsp__inst_executed.sum"),
        unit="% of its instructions are fp32 arithmetic",
    )
    yield from same(
        "N453",
        100
        / 32
        * counter("fp16_phase4", "smsp__thread_inst_executed_pipe_xu_pred_on.sum")
        / counter("fp16_phase4", "smsp__inst_executed.sum"),
        unit="% of its instructions are special functions or conversions",
    )
    yield from same(
        "N451",
        count("fp16_phase4_scalar_loads", "inst.ld.global") / count("fp16_phase4", "inst.ld.global"),
        note="loads one half at a time over vector loads",
    )
    yield from same(
        "N456",
        100 * (1 - e.speedup("fp16_phase4_scalar_loads", "fp16_phase4", **ABLATION)),
        unit="% of the time goes with vector loads",
    )
    yield from same(
        "N457",
        100 * e.speedup("fp16_phase4_scalar_loads", "fp16_phase4", **ABLATION),
        unit="% of the time stays with vector loads",
    )
    yield from same(
        "N468", e.time("fp16_phase4_mma", **ABLATION), unit="µs, the whole kernel with both products on tensor cores"
    )
    yield from same("N469", e.time("fp16_phase4_mma", **ABLATION), note="both products on tensor cores")
    yield from each(
        "N486 N487",
        *(e.time(version, **ABLATION) for version in ("fp16_phase4_64x64", "fp16_phase4_64x32")),
        note="tiles of 64 rows, with 64 and 32 keys",
    )
    yield from same("N489", e.speedup("fp16_phase4_64x64", "fp16_phase4", **ABLATION), note="tiles of 64 x 64")
    yield from each(
        "N473 N474 N494 N495 X111",
        *(
            time(version, causal=0)
            for version in (
                "torch_sdpa_fp16_flash",
                "torch_sdpa_fp16_cudnn",
                "torch_sdpa_fp16_flash",
                "torch_sdpa_fp16_cudnn",
                "torch_sdpa_fp16",
            )
        ),
        note="PyTorch's SDPA",
    )
    yield from same("N478 N507 X118", e.ceiling("one_tile_gemm_us"), note="one product of 32 x 64 by 64 x 64")
    yield from same("X119", 2 * 32 * 64 * 64 / e.ceiling("one_tile_gemm_us") / 1000000.0)
    yield from same(
        "N479 N480", error("fp16_phase6_iter2"), rule="most", note="against float64, on the input that decides"
    )
    yield from same("X112", error("fp16_phase4"), rule="most", note="against float64, on the input that decides")


MEASURED = (work, failures, half)
