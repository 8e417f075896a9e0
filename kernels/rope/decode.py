"""RoPE decode: a few queries over a long raw cache, with K rotated once for all query heads that share it.

Change from rope_v8: keys are split over blocks and combined by a second launch; query heads of a group share a block;
keys are rotated on their way to the product by a recurrence with exact seeds.

Source: beyond the documents, which name decode as future work.
"""

from ..constants import require
from ..flash.decode.plan import decode_plan
from ..version import Plan, Problem, register


@register(
    title="Split keys for decode",
    parent="rope_v8",
    baseline="rope_separate",
    source="beyond the documents",
    change="keys split over blocks; a key is read and rotated once for all query heads that share it",
    beyond=True,
)
def rope_decode(problem: Problem, target: str) -> Plan:
    """Plan up to 8 queries a head in float32 or half precision. Raises: Unsupported."""
    require(problem.family == "rope", "family", problem.family, "rope")
    return decode_plan(problem, target)
