"""What stands beside the printed numbers of attention and half precision, where the columns do not say it."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..evidence import Estimate, Evidence, said
from .printed import Also, Values
from .validation import PASSING, hdims_timed

LOG, SIZES = (512, 2048, 4096, 8192), (512, 2048, 8192)
HALF: dict[str, Any] = {"hdim": 64, "seq_q": 512}
ABLATION: dict[str, Any] = {"study": "ablation", **HALF}


def work(e: Evidence) -> Values:
    count, size, time = (partial(ask, hdim=8192) for ask in (e.count, e.size, e.time))
    return {
        "N230 N285 N290": size("attention_online", "flops")
        / (2 * size("attention_online", "heads") * size("attention_online", "seq_q")),
        "N231 N288": 4 * 8192 * (1 + size("attention_online", "seq_k")),
        "N232 N289": Also(
            2 * size("attention_online", "seq_k") / (4 * (1 + size("attention_online", "seq_k"))),
            {
                "of a call, bytes asked for": size("attention_online", "flops")
                / (32 * count("attention_online", "global.read.sectors global.write.sectors")),
                "of a call, every sector once": size("attention_online", "flops")
                / (32 * count("attention_online", "global.unique_sectors.read global.unique_sectors.write")),
            },
        ),
        "N234": e.size("attention_online", "flops", hdim=LOG)
        / (
            32
            * (
                e.count("attention_online", "global.unique_sectors.read", hdim=LOG)
                + e.count("attention_online", "global.unique_sectors.write", hdim=LOG)
            )
        ),
        "N286": 4 * 8192,
        "N287 N291 N252 N253": 4 * size("attention_online", "seq_k") * 8192,
        "N254 N309": 8 * size("attention_online", "seq_k") * 8192,
        "N292": 4 * size("attention_online", "seq_k"),
        "N293": 4 * size("attention_online", "seq_k") * (8192 + 1),
        "N294 N298": 2 * 8192 / (4 * (8192 + 1)),
        "N233": 1000 * e.ceiling("fp32_tflops") / e.ceiling("read_gb_s"),
        "N297": Also(
            1000 * said("N295") / said("N296"),
            {"by this GPU's ceilings": 1000 * e.ceiling("fp32_tflops") / e.ceiling("read_gb_s")},
        ),
        "N299": 1000 * said("N295") / said("N296") / said("N298"),
        "N295 N397": e.ceiling("fp32_tflops"),
        "N296 N311 N398": e.ceiling("read_gb_s"),
        "N235 N310": [
            32 * count(version, "global.read.sectors") / time(version) / 1000.0
            for version in ("attention_two_pass_float4", "attention_online")
        ],
        "N237 N312": [
            100 * 32 * count(version, "global.read.sectors") / time(version) / 1000.0 / e.ceiling("read_gb_s")
            for version in ("attention_two_pass_float4", "attention_online")
        ],
        "N238 N239 N269 N270 N278 N279": [
            e.size("attention_online", "seq_q", hdim=hdim) for hdim in (8192, 512, 8192, 512, 8192, 512)
        ],
        "N240 N241": e.blocks("attention_online", hdim=(8192, 512)),
        "N271": 100 * 8 * size("attention_online", "seq_k") * 8192 / e.identity("l2_bytes"),
        "N283": Estimate.exact(min(hdims_timed("attention")), "published.csv"),
        "N284": Estimate.exact(max(hdims_timed("attention")), "published.csv"),
        "N229 N280 N300": e.shared_bytes("attention_online", "scores", hdim=512) / 4,
    }


def failures(e: Evidence) -> Values:
    blocks, shared_bytes, size, status = (
        partial(ask, hdim=512) for ask in (e.blocks, e.shared_bytes, e.size, e.status)
    )
    return {
        "N249": size("attention_multi_query_227k", "heads")
        * size("attention_multi_query_227k", "seq_q")
        / blocks("attention_multi_query_227k"),
        "N250": size("attention_tensor_core_v2", "heads")
        * size("attention_tensor_core_v2", "seq_q")
        / blocks("attention_tensor_core_v2"),
        "N256 N257 N258": Also(
            [48000 // (8 * hdim) for hdim in SIZES], {"in 49,152 B": [49152 // (8 * hdim) for hdim in SIZES]}
        ),
        "N259": shared_bytes("attention_async_double_buffer"),
        "X052 X053 X054": [
            e.shared_bytes(version, hdim=hdim)
            for version, hdim in (
                ("attention_multi_query_227k", 512),
                ("attention_async_double_buffer", 512),
                ("attention_tensor_core_v1", 2048),
            )
        ],
        "N260": 512 * status("attention_register_tiling", "wrong"),
        "N261": e.threads("attention_register_tiling", hdim=8192),
        "N263": 8
        * e.count("attention_register_tiling", "global.unique_sectors.write", hdim=8192)
        / (
            e.size("attention_register_tiling", "heads", hdim=8192)
            * e.size("attention_register_tiling", "seq_q", hdim=8192)
        ),
        "N262": 8
        * e.count("attention_register_tiling", "global.unique_sectors.write", hdim=8192)
        / (
            e.size("attention_register_tiling", "heads", hdim=8192)
            * e.size("attention_register_tiling", "seq_q", hdim=8192)
        )
        / e.threads("attention_register_tiling", hdim=8192),
        "N264": (
            e.count("attention_baseline", "inst.ld.global", hdim=2048)
            - (8 * e.count("attention_baseline", "global.read.sectors.v", hdim=2048))
        )
        / (
            e.count("attention_two_pass_float4", "inst.ld.global", hdim=2048)
            - (8 * e.count("attention_two_pass_float4", "global.read.sectors.v", hdim=2048))
        ),
        "X027 X028 X029 X030": 100 * e.nan_share("attention_online", hdim=LOG),
        "X025 X026": e.error("attention_online", hdim=(512, 2048)),
        "N395 N399": [e.error(version, hdim=hdim) for version, hdim in PASSING.items()],
        "X055 X056 X057 X058": e.time("torch_sdpa", hdim=LOG),
        "X059 X060 X061 X062": e.time("torch_matmul_softmax", hdim=LOG),
    }


def half(e: Evidence) -> Values:
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
    return {
        "N408": time("fp16_phase4") / time("fp16_phase6_iter2"),
        "N420 N423 N437": [
            time("fp16_phase4") / time(version)
            for version in ("fp16_phase6_iter1", "fp16_phase6_iter2", "fp16_phase6_iter1")
        ],
        "N409 N413 N424 N428 N429 N430 N439": [
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
        ],
        "N410 N414 N425 N431 N438": [
            size(version, "heads") * 512 / blocks(version)
            for version in (
                "fp16_phase6_iter2",
                "fp16_phase4",
                "fp16_phase6_iter2",
                "fp16_phase6_iter2",
                "fp16_phase6_iter2",
            )
        ],
        "N415": shared_bytes("fp16_phase4", "scores")
        / 4
        / (size("fp16_phase4", "heads") * 512 / blocks("fp16_phase4")),
        "N416 N417 X123": (count("fp16_phase4", "barriers") / blocks("fp16_phase4") - 1) / 8,
        "X124": (count("fp16_phase6_iter2", "barriers") / blocks("fp16_phase6_iter2") - 2) / 8,
        "N418": 100 * status("fp16_phase4", "ok"),
        "N421 N435": resource("fp16_phase6_iter1", "stack_bytes") / 4,
        "N433 N434": resource("fp16_phase6_iter1", "stack_bytes") / 4 - 2048,
        "N436": resource("fp16_phase6_iter1", "stack_bytes"),
        "N426": count("fp16_phase6_iter2", "global.read.bytes_requested")
        / count("fp16_phase6_iter2", "inst.ld.global"),
        "N427": count("fp16_phase6_iter2", "global.read.bytes_requested")
        / count("fp16_phase6_iter2", "inst.ld.global")
        / 2,
        "N440": size("fp16_phase6_iter2", "heads") * 512 / blocks("fp16_phase6_iter2") / threads("fp16_phase6_iter2"),
        "N441 N442 N443 N444": [
            shared_bytes("fp16_phase6_iter2", array) for array in ("accumulator", "scores", "key_value", "query")
        ],
        "N445 X120 X121 X122": [
            shared_bytes(version)
            for version in ("fp16_phase6_iter2", "fp16_phase4", "fp16_phase6_iter2", "fp16_phase6_iter1")
        ],
        "N447 N448 N449 N461 N464": [
            e.time("fp16_phase4", **ABLATION) - e.time(version, **ABLATION)
            for version in (
                "fp16_phase4_no_scores",
                "fp16_phase4_no_softmax",
                "fp16_phase4_no_values",
                "fp16_phase4_no_scores",
                "fp16_phase4_no_values",
            )
        ],
        "N467": 2 * e.time("fp16_phase4", **ABLATION)
        - e.time("fp16_phase4_no_scores", **ABLATION)
        - e.time("fp16_phase4_no_values", **ABLATION),
        "X113 X114 X115": [
            100 * (1 - (e.time(version, **ABLATION) / e.time("fp16_phase4", **ABLATION)))
            for version in ("fp16_phase4_no_scores", "fp16_phase4_no_values", "fp16_phase4_no_softmax")
        ],
        "N454 X116": 100 * stalled("fp16_phase4", "barrier"),
        "N455 X117": 100 * stalled("fp16_phase4", "long_scoreboard lg_throttle"),
        "N452 N509": 100
        / 32
        * (
            counter("fp16_phase4", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum")
            + counter("fp16_phase4", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum")
            + counter("fp16_phase4", "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum")
        )
        / counter("fp16_phase4", "smsp__inst_executed.sum"),
        "N453": 100
        / 32
        * counter("fp16_phase4", "smsp__thread_inst_executed_pipe_xu_pred_on.sum")
        / counter("fp16_phase4", "smsp__inst_executed.sum"),
        "N451": count("fp16_phase4_scalar_loads", "inst.ld.global") / count("fp16_phase4", "inst.ld.global"),
        "N456": 100 * (1 - e.speedup("fp16_phase4_scalar_loads", "fp16_phase4", **ABLATION)),
        "N457": 100 * e.speedup("fp16_phase4_scalar_loads", "fp16_phase4", **ABLATION),
        "N468": e.time("fp16_phase4_mma", **ABLATION),
        "N469": e.time("fp16_phase4_mma", **ABLATION),
        "N486 N487": [e.time(version, **ABLATION) for version in ("fp16_phase4_64x64", "fp16_phase4_64x32")],
        "N489": e.speedup("fp16_phase4_64x64", "fp16_phase4", **ABLATION),
        "N473 N474 N494 N495 X111": [
            time(version, causal=0)
            for version in (
                "torch_sdpa_fp16_flash",
                "torch_sdpa_fp16_cudnn",
                "torch_sdpa_fp16_flash",
                "torch_sdpa_fp16_cudnn",
                "torch_sdpa_fp16",
            )
        ],
        "N478 N507 X118": e.ceiling("one_tile_gemm_us"),
        "X119": 2 * 32 * 64 * 64 / e.ceiling("one_tile_gemm_us") / 1000000.0,
        "N479 N480": error("fp16_phase6_iter2"),
        "X112": error("fp16_phase4"),
    }


MEASURED = (work, failures, half)
