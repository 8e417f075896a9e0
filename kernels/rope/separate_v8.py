"""RoPE separate on the V8 core: one launch rotates Q and K, then attention without an embedding.

Change from rope_v8: a kernel rotates Q and K before the attention, through global memory; the core is the same.

Source: beyond the documents.
"""

from numba import cuda, int32, uint32

from ..constants import FLOATS, INT, THREADS, UINT, require
from ..device.vector import advance, ld4, st4
from ..flash.cluster import attend, plan, require_problem
from ..version import Buffer, Kernel, Launch, Plan, Problem, register
from .v8 import cos_sin, rates_buffer, rates_of, rotate_pairs_odd

MOST_ELEMENTS = 2**32 - 1  # the kernel counts elements in 32 bits


def rotate_rows(x, rates, turned, rows, seq, hdim, rotary_dim, offset):
    """Rotate the first `rotary_dim` dims of rows `[heads, seq, hdim]` and copy the others; 4 dims per thread."""
    quad = uint32(uint32(cuda.blockIdx.x) * THREADS + uint32(cuda.threadIdx.x))
    quads = hdim // uint32(4)
    row = quad // quads
    dim = uint32(quad % quads * uint32(4))
    if row < rows:
        value = ld4(advance(x, row * hdim), dim)
        if dim < rotary_dim:
            cos0, sin0, cos1, sin1 = cos_sin(rates, offset + int32(row % seq), dim, rates_of(rates, dim), hdim)
            value = rotate_pairs_odd(value, cos0, sin0, cos1, sin1)
        st4(advance(turned, row * hdim), dim, value)


def require_counted(elements: int) -> None:
    """Raise Unsupported for a tensor with more elements than the kernel can count."""
    template = "a tensor has {needed:,} elements; the rotation takes {allowed:,}"
    require(elements <= MOST_ELEMENTS, "elements", elements, MOST_ELEMENTS, template)


def launch_rotation(problem: Problem, name: str) -> Launch:
    """Rotate q or k into the buffer `<name>_turned`. Raises: Unsupported for too many elements."""
    heads, seq = (problem.heads, problem.seq_q) if name == "q" else (problem.kv_heads, problem.seq_k)
    rows = problem.batch * heads * seq
    require_counted(rows * problem.hdim)
    return Launch(
        Kernel(rotate_rows, (FLOATS,) * 3 + (UINT,) * 4 + (INT,)),
        grid=(-(-rows * problem.hdim // (4 * THREADS)),),
        block=(THREADS,),
        args=(
            name,
            "rates",
            f"{name}_turned",
            rows,
            seq,
            problem.hdim,
            problem.rotary_dim,
            problem.q_offset if name == "q" else 0,
        ),
    )


@register(
    title="Separate, then attention over a cluster",
    parent="rope_v8",
    baseline="rope_v8",
    change="Q and K are rotated by launches of their own, through global memory; the core is the same",
    beyond=True,
    variant_of="rope_v8",
)
def rope_separate_v8(problem: Problem, target: str) -> Plan:
    """Plan float32 RoPE attention on the V8 core for the target. Raises: Unsupported."""
    require_problem(problem, "rope")
    turned = {"q_turned": Buffer(problem.q_shape), "k_turned": Buffer(problem.kv_shape)}
    rotations = (launch_rotation(problem, name) for name in "qk")
    attention = attend(problem, q="q_turned", k="k_turned", target=target)
    return plan(problem, *rotations, attention, rates=rates_buffer(problem.rotary_dim), **turned)
