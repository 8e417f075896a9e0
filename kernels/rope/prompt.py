"""RoPE attention of prompts in half precision, on tensor cores.

Change from rope_v8: half precision; queries are rotated as they come; keys on their way to shared memory while blocks
are few, else by a launch of their own.

Source: beyond the documents, which estimate tensor cores and did not build them.
"""

from __future__ import annotations

from ..constants import require
from ..flash.prompt_plan import prompt_plan
from ..version import Plan, Problem, register


@register(
    family="rope",
    title="Prompts in half precision",
    parent="rope_v8",
    baseline="rope_separate",
    source="beyond the documents",
    change="half precision on mma.sync or wgmma; keys rotated on their way to shared memory, or by a launch before",
    beyond=True,
)
def rope_prompt(problem: Problem, target: str) -> Plan:
    """Plan float16 or bfloat16. Raises: Unsupported."""
    require(problem.family == "rope", "family", problem.family, "rope")
    return prompt_plan(problem, target)
