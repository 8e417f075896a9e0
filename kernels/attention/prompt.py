"""Attention of prompts in half precision: the kernels of rope_prompt with the rotation compiled out.

Change from attention_v8: half precision on tensor cores.

Source: beyond the documents.
"""

from ..constants import require
from ..flash.prompts.plan import prompt_plan
from ..version import Plan, Problem, register


@register(
    title="Prompts in half precision",
    parent="attention_v8",
    baseline="attention_online_fixed",
    change="half precision on mma.sync or wgmma",
    beyond=True,
    variant_of="rope_prompt",
)
def attention_prompt(problem: Problem, target: str) -> Plan:
    """Plan float16 or bfloat16. Raises: Unsupported."""
    require(problem.family == "attention", "family", problem.family, "attention")
    return prompt_plan(problem, target)
