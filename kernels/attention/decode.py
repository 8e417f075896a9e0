"""Attention decode: the kernel of rope_decode with the rotation compiled out.

Change from attention_v8: keys are split over blocks, and query heads of a group share a block.

Source: beyond the documents.
"""

from ..constants import require
from ..flash.decode.plan import decode_plan
from ..version import Plan, Problem, register


@register(
    title="Split keys for decode",
    parent="attention_v8",
    baseline="attention_online_fixed",
    change="keys split over blocks; a key is read once for all query heads that share it",
    beyond=True,
    variant_of="rope_decode",
)
def attention_decode(problem: Problem, target: str) -> Plan:
    """Plan up to 8 queries a head in float32 or half precision. Raises: Unsupported."""
    require(problem.family == "attention", "family", problem.family, "attention")
    return decode_plan(problem, target)
