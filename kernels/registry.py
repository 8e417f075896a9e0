"""Every kernel version of the log, in log order, and what goes beyond it: importing a version registers it.

`VERSIONS` of the package is that of this module, which is imported with it: the op needs no version. OWN: no peers.
"""

# ruff: noqa: F401, I001 -- the order is the log's
from .version import VERSIONS

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
from .peers import half, flashinfer, flash3
from .log.controls import register as _controls, ablations as _control_ablations

OWN = [version for version in VERSIONS.values() if not version.is_peer]
