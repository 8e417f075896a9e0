"""Sinusoidal V6: full fusion on a core that distributes the head dim over a thread-block cluster.

Change from sinusoidal_v5: the core of kernels/flash/cluster instead of one thread per key. K is embedded between its
load and its product, once per tile of queries; where there are many such tiles, all blocks embed it once together. The
embedding uses frequencies without powf, or a table.

Source: beyond the documents.
"""

from numba import cuda, float32

from ..device.angle import sincospi
from ..device.vector import make_float4
from ..flash.cluster import Embedding, attend, plan, require_problem
from ..learned.table import add_rows
from ..rope.v8 import rates_buffer, rates_of
from ..version import Plan, Problem, register


@cuda.jit(device=True)
def waves(rates, position, dim, rate, hdim):
    sin0, cos0 = sincospi(float32(position), rate.x, rate.y)
    sin1, cos1 = sincospi(float32(position), rate.z, rate.w)
    return sin0, cos0, sin1, cos1


@cuda.jit(device=True)
def added(x, sin0, cos0, sin1, cos1):
    return make_float4(x.x + sin0, x.y + cos0, x.z + sin1, x.w + cos1)


SINUSOIDAL = Embedding("sinusoidal", rates_of, waves, added)


@register(
    title="Full fusion over a cluster",
    parent="sinusoidal_v5",
    baseline="sinusoidal_separate_float4",
    change="one launch; a cluster shares the head dim, K is embedded once a query tile; TF32 tensor cores",
    beyond=True,
    variant_of="rope_v8",
)
def sinusoidal_v6(problem: Problem, target: str) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, computed or from a table. Raises: Unsupported."""
    require_problem(problem, "sinusoidal")
    if problem.table != "computed":
        return add_rows(problem, target)
    launch = attend(problem, SINUSOIDAL, "rates", problem.hdim, target=target)
    return plan(problem, launch, rates=rates_buffer(problem.hdim))
