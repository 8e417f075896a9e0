"""RoPE attention of prompts in half precision, on tensor cores.

Change from rope_v8: half precision; queries are rotated as they come, and keys by a launch of their own, which the
second overlaps.

Source: beyond the documents, which estimate tensor cores and did not build them.
"""

from ..constants import require
from ..flash.prompts.plan import prompt_plan
from ..version import Plan, Problem, register


@register(
    title="Prompts in half precision",
    parent="rope_v8",
    baseline="rope_separate",
    source="beyond the documents",
    change="half precision on mma.sync or wgmma; keys rotated by a launch before, which the second overlaps",
    beyond=True,
)
def rope_prompt(problem: Problem, target: str) -> Plan:
    """Plan float16 or bfloat16. Raises: Unsupported."""
    require(problem.family == "rope", "family", problem.family, "rope")
    return prompt_plan(problem, target)
