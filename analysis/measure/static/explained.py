"""Why a mutant survives that no quick case could catch."""

from __future__ import annotations

BEFORE_MAXIMUM = "cuda.syncthreads()  # before tile_max = NEGATIVE_INFINITY"
NORMALISED = "shared[{}] = shared[{}] / row_sum if row_sum > float32(0.0) else float32(0.0)"
ONLINE = (
    *("attention_online", "attention_online_fixed", "attention_register_tiling"),
    *("attention_async_double_buffer", "attention_async_double_buffer_227k"),
    *("sinusoidal_separate_scalar", "sinusoidal_v1", "sinusoidal_v2", "sinusoidal_v3", "sinusoidal_v4"),
    *("sinusoidal_v5", "sinusoidal_separate_float4", "sinusoidal_hybrid_v1", "sinusoidal_hybrid_v2"),
    *("rope_separate", "rope_v1a", "rope_v1b", "rope_v1c", "rope_v2", "rope_v5", "rope_v6a", "rope_v6b", "rope_v7"),
)

# By version, function, operator and original line.
EXPLAINED: dict[tuple[str, str, str, str], str] = {
    **{
        (version, "attention", "barrier", BEFORE_MAXIMUM): "a thread takes the maximum of scores that it wrote itself"
        for version in ONLINE
    },
    ("rope_v5", "attention", "barrier", "cuda.syncthreads()  # before tile_start += block_k"): (
        "keys alone are stored before the next one, and scores alone read before this one"
    ),
    **{
        (version, "attention", "bound", "while i < COPIES * hdim:"): "the same thread stores a key in the next element"
        for version in ("attention_tensor_core_v1", "attention_tensor_core_v1_227k")
    },
    **{
        (version, "attention", "barrier", "cuda.syncthreads()  # before pair = tid"): (
            "a thread rotates the pairs whose frequencies it computed; another follows before they meet keys"
        )
        for version in ("rope_v5", "rope_v6a", "rope_v6b", "rope_v7")
    },
    **{
        (version, "attention", "mask", NORMALISED.format(place, place)): "a sum of exponentials is above 0"
        for version, place in (
            *((f"attention_{name}", "key") for name in ("atomics", "atomics_float4", "baseline", "two_pass_float4")),
            *((f"attention_{name}", "row + key") for name in ("tensor_core_v2", "multi_query", "multi_query_227k")),
        )
    },
    **{
        (version, "attention", operator, line): "the score stored last is 0"
        for version in ("attention_tensor_core_v1", "attention_tensor_core_v1_227k")
        for operator, line in (("scale", "shared[scores + key] = score * softmax_scale"), ("loop", "dim = cint(0)"))
    },
    **{
        (version, "block_max_unshared", "barrier", "cuda.syncthreads()  # before return value"): (
            "warp 0 alone reads and stores there before the next barrier"
        )
        for version in ("attention_two_pass_float4", "attention_tensor_core_v2", "attention_multi_query")
    },
    ("fp16_minimal", "attention", "bound", "while key < BLOCK_K:"): (
        "a softmax may subtract any number near the maximum"
    ),
    **{
        (version, "attention", "loop", "pair += THREADS"): (
            "a thread has a second pair from 514 dims on, in make test-deep"
        )
        for version in ("rope_v4", "rope_v5", "rope_v6a", "rope_v6b")
    },
    **{
        ("attention_tensor_core_v1_227k", "attention", "bound", line): why
        for line, why in (
            ("for r in range(OUTPUTS):", "shared memory ends below 720 dims; the last output is of dim 3,840 or more"),
            (
                "last_key = min(key + keys_per_warp, tile)",
                "the next warp's first score is stored once more, the same; that stores of scores race is declared",
            ),
        )
    },
    **{
        (version, "attention", "barrier", "cuda.syncthreads()  # before tile_start += block_k"): (
            "the one behind the last query comes right before it"
        )
        for version in ("attention_multi_query", "attention_multi_query_227k")
    },
    **{
        ("rope_v7", "attention", operator, "if dim + 3 >= hdim:"): "never true: hdim is a multiple of 4"
        for operator in ("bound", "mask")
    },
    ("fp16_minimal", "attention", "barrier", "cuda.syncthreads()  # before if tid < HDIM:"): (
        "a thread sets, rescales and adds to its own element of the output, and the scores are only read"
    ),
    **{
        (version, "attention", "barrier", f"cuda.syncthreads()  # before {line}"): "another follows before any is read"
        for version, line in (
            *((f"fp16_{name}", "tile_start = cint(0)") for name in ("phase4", "phase6_iter2")),
            *((f"fp16_{name}", "if row < BLOCK_M:") for name in ("phase6_iter1", "phase6_iter2")),
            *(
                (f"attention_tensor_core_v1{room}", "acc = cuda.local.array(OUTPUTS, float32)")
                for room in ("", "_227k")
            ),
            *(
                (f"attention_async_double_buffer{room}", "acc = cuda.local.array(OUTPUTS, float32)")
                for room in ("", "_227k")
            ),
            *((f"attention_multi_query{room}", "query += 1") for room in ("", "_227k")),
            *((f"rope_{name}", "row_max = NEGATIVE_INFINITY") for name in ("v5", "v6a", "v6b")),
        )
    },
}
