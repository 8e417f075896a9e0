"""The V8 cores: attention in one launch, with a place for an embedding.

`wgmma` multiplies by warpgroups (compute capability 9.0 alone), `mma` by warps (9.0 and above), both in clusters;
`portable` needs neither clusters nor tensor cores.
"""

from __future__ import annotations

from typing import Any

from ..constants import attention_buffers
from ..version import Buffer, Launch, Plan, Problem
from .embedding import PLAIN, Embedding, require_problem
from .mma import attend as attend_by_warps
from .wgmma import attend as attend_by_warpgroups
from .wgmma import workspace
from .wgmma_shape import takes

__all__ = ["PLAIN", "Embedding", "attend", "plan", "require_problem"]


def attend(problem: Problem, *arguments: Any, **options: Any) -> Launch:
    """The launch that attends to a problem on the core that is made for it; arguments are those of `wgmma.attend`.

    Raises: Unsupported where no tile fits shared memory.
    """
    core = attend_by_warpgroups if takes(problem) else attend_by_warps
    return core(problem, *arguments, **options)


def plan(problem: Problem, launch: Launch, **buffers: Buffer) -> Plan:
    """The plan of one launch that attends, with the buffers that its arguments name and what it needs beside them."""
    return Plan(problem, attention_buffers(problem, **buffers, **workspace(problem, launch)), (launch,))
