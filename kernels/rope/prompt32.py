"""RoPE attention of prompts in float32, on the half-precision tensor cores.

Change from rope_prompt: a launch before rotates and splits each float32 into two float16 parts; three products of parts
give one of float32.

Source: beyond the documents.
"""

from ..constants import require
from ..flash.prompts.float32_plan import prompt32_plan
from ..version import Plan, Problem, register


@register(
    title="Prompts in float32 on wgmma",
    parent="rope_prompt",
    baseline="rope_separate",
    change="two float16 parts of each float32, made and rotated by a launch before; three products on wgmma",
    beyond=True,
)
def rope_prompt32(problem: Problem, target: str) -> Plan:
    """Plan float32 with up to 256 dims. Raises: Unsupported."""
    require(problem.family == "rope", "family", problem.family, "rope")
    return prompt32_plan(problem, target)
