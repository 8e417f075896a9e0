"""RoPE attention of chunks: some queries over many raw keys in float32, on TF32 tensor cores.

Change from rope_decode: 16 queries or more a head; tiles of keys and values in shared memory, rotated there; three TF32
products of each pair of factors.

Source: beyond the documents.
"""

from ..constants import require
from ..flash.chunks.plan import chunk_plan
from ..version import Plan, Problem, register


@register(
    title="Split keys for chunks of queries",
    parent="rope_decode",
    baseline="rope_separate",
    change="tiles of keys and values that warps share, rotated in shared memory; three products on TF32 tensor cores",
    beyond=True,
)
def rope_chunk(problem: Problem, target: str) -> Plan:
    """Plan float32 with up to 320 dims. Raises: Unsupported."""
    require(problem.family == "rope", "family", problem.family, "rope")
    return chunk_plan(problem, target)
