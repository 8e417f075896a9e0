"""FP16 Phase 7, which the report estimates and nobody built: tensor cores, in four steps of one thing each.

The tile kernel is that of `flash.prompts.mma`: 32 query rows a block, as in Phase 4; two warps share the rows and four
the keys of a tile, 128 or 256 at a time. Scores are fragments in a warp's registers, and the online softmax is of
these; the warps' results are merged at the end. The fourth step is the kernel of `flash.prompts.wgmma`.

Source: Phase 6 Status Report, "What Would Actually Help", which estimates tensor cores at 2 to 4 weeks.
"""

from typing import Any

from ..constants import require
from ..flash.prompts.plan import prompt_plan
from ..version import Plan, Problem, register

SOURCE = 'Phase 6 Status Report, "What Would Actually Help", tensor cores'
ALONE: dict[str, Any] = {"wgmma": False, "stages": 1, "ahead": 0}  # a tile is asked for when it is needed


def _plan(problem: Problem, target: str, **fields: Any) -> Plan:
    require(problem.family == "fp16", "family", problem.family, "fp16")
    require(problem.dtype == "float16", "dtype", problem.dtype, "float16")
    return prompt_plan(problem, target, overlap=False, **fields)


@register(
    title="Phase 7a: scores on tensor cores",
    parent="fp16_phase4",
    baseline="fp16_phase4",
    source=SOURCE,
    change="scores by mma.sync, which leaves them in registers, and with them the softmax; eight warps",
    iterations=100,
    beyond=True,
)
def fp16_phase7a(problem: Problem, target: str) -> Plan:
    """Plan float16 attention. Raises: Unsupported."""
    return _plan(problem, target, **ALONE, weigh="fma")


@register(
    title="Phase 7b: both products on tensor cores",
    parent="fp16_phase7a",
    baseline="fp16_phase4",
    source=SOURCE,
    change="the weighted sum by mma.sync, of weights as they lie in registers",
    iterations=100,
    beyond=True,
)
def fp16_phase7b(problem: Problem, target: str) -> Plan:
    """Plan float16 attention. Raises: Unsupported."""
    return _plan(problem, target, **ALONE)


@register(
    title="Phase 7c: tiles are copied ahead",
    parent="fp16_phase7b",
    baseline="fp16_phase4",
    source=SOURCE,
    change="two or three tiles of keys and values in shared memory, asked for before they are needed",
    iterations=100,
    beyond=True,
)
def fp16_phase7c(problem: Problem, target: str) -> Plan:
    """Plan float16 attention. Raises: Unsupported."""
    return _plan(problem, target, wgmma=False)


@register(
    title="Phase 7d: wgmma",
    parent="fp16_phase7c",
    baseline="fp16_phase4",
    source=SOURCE,
    change="wgmma and tensor maps: 128 query rows a block, scores of a tile started with the sum of the one before",
    iterations=100,
    beyond=True,
)
def fp16_phase7d(problem: Problem, target: str) -> Plan:
    """Plan float16 attention on compute capability 9.0. Raises: Unsupported."""
    return _plan(problem, target, wgmma=True)
