"""Device functions and intrinsics that the kernels share, and where each is."""

# ruff: noqa: F401
from .asm import (
    cp_async_commit,
    cp_async_wait,
    cp_async_wait_all,
    cp_async_wait_but_one,
    exp2,
    mma_m16n8k8_tf32,
    mma_m16n8k16_f16,
)
from .cint import CINT, CUINT, cint, cuint
from .half import HALVES, float2half, floats2half2, half2float
from .local import local_array
from .loop import no_unroll, opaque, repeat
from .online import dot4, online_attention, rows_of_block, rows_of_query
from .reduce import (
    FULL_MASK,
    NEGATIVE_INFINITY,
    block_max,
    block_max_unshared,
    block_sum,
    block_sum_unshared,
    shared_by_thread_0,
    warp_max,
    warp_sum,
)
from .softmax import (
    divide_output,
    divide_weights,
    exponentials,
    softmax_tile,
    softmax_tile_unshared,
    store_output,
    weigh_values,
)
from .tensor import FACTOR_BOUND, VALUE_BOUND, split, split_bounded
from .trig import cosf, fast_cos, fast_sin, fast_sincos, powf, rotate, sinf
from .vector import advance, ld2, ld4, make_float4, st2, st4
