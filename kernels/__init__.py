"""Every kernel version of the log, in log order, what goes beyond it, and what they share.

`VERSIONS` maps an id to its version. `rope_attention`, `attention`, `alibi_attention` and `warm_up` are those of `op`,
which is imported with the first of them.
"""

# ruff: noqa: E402, F401, I001 -- importing a version registers it, and the order is the log's
from .runtime.environment import refuse_foreign, require_numba_cuda

require_numba_cuda()
from .version import VERSIONS, Plan, Problem, Unsupported, Version, version

from .log.attention import atomics, baseline, atomics_float4, two_pass_float4, online, online_fixed
from .log.attention import register_tiling, tensor_core_v1, tensor_core_v2, multi_query, async_double_buffer
from .log.sinusoidal import separate_scalar, v1_naive, v2_float4, v3_computed, v4_cached_frequencies, v5_float4
from .log.sinusoidal import separate_float4, hybrid_v1, hybrid_v2
from .log.rope import separate, v1a_tables, v1b_fixed, v1c_float4, v2_computed, v3_four_queries
from .log.rope import v4_cached_frequencies as rope_v4, v5_key_tiles, v6a_dimension_tiles, v6b_partial, v7_hybrid
from .log.fp16 import minimal, phase4, phase6_iter1, phase6_iter2
from .log.ablations import fast_math
from .peers import pytorch, one_graph, triton
from .log.ablations import attention as _attention_ablations, attention_two_pass_mma, attention_async_sliced
from .log.ablations import sinusoidal as _sinusoidal_ablations
from .log.ablations import rope as _rope_ablations, rope_v3_64_queries
from .log.ablations import fp16 as _fp16_ablations, fp16_phase4_mma, fp16_phase6_iter2_warp_per_row
from .flash import versions as _beyond_the_log
from .peers import embeddings
from .peers import half, flashinfer
from .log.controls import register as _controls, ablations as _control_ablations

_OPS = ("alibi_attention", "attention", "rope_attention", "warm_up")


def __getattr__(name: str) -> object:
    if name in _OPS:
        from . import op

        globals().update({each: getattr(op, each) for each in _OPS})  # so that this is not asked again
        return globals()[name]
    refuse_foreign(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
