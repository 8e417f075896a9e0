"""The V8 cores: attention in one launch, with a place for an embedding.

`wgmma` multiplies by warpgroups (compute capability 9.0 alone), `mma` by warps (9.0 and above), both in clusters;
`portable` needs neither clusters nor tensor cores.
"""

from typing import Any

from ...limits import CLUSTERS_SINCE, EMULATED_TARGET, capability
from ...planning import attention_buffers
from ...version import Buffer, Launch, Plan, Problem, Unsupported
from .card import SMS
from .embedding import PLAIN, Embedding, require_problem
from .mma.core import attend as attend_by_warps
from .portable.core import attend as attend_anywhere
from .wgmma.choose import takes
from .wgmma.core import attend as attend_by_warpgroups
from .wgmma.core import workspace

__all__ = ["PLAIN", "Embedding", "attend", "plan", "require_problem"]

WARPGROUPS_ON = (9, 0)  # the compute capability


def attend(problem: Problem, *arguments: Any, target: str = EMULATED_TARGET, sms: int = SMS, **options: Any) -> Launch:
    """The launch that attends to a problem on the core that is made for it and for the target, a card with `sms` SMs.

    Arguments and options are those of `wgmma.attend`. Where clusters do not hold a problem, the portable core does.

    Raises: Unsupported for more blocks than a grid has.
    """
    cc = capability(target)
    if cc == WARPGROUPS_ON and takes(problem, sms):
        return attend_by_warpgroups(problem, *arguments, sms=sms, **options)
    if cc >= CLUSTERS_SINCE:
        try:
            return attend_by_warps(problem, *arguments, target=target, sms=sms, **options)
        except Unsupported as refusal:
            if refusal.kind not in ("shared_memory", "grid"):
                raise
    return attend_anywhere(problem, *arguments, **options)


def plan(problem: Problem, launch: Launch, **buffers: Buffer) -> Plan:
    """The plan of one launch that attends, with the buffers that its arguments name and what it needs beside them."""
    return Plan(problem, attention_buffers(problem, **buffers, **workspace(problem, launch)), (launch,))
