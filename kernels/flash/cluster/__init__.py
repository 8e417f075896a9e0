"""The V8 cores: attention with a place for an embedding.

`wgmma` multiplies by warpgroups (compute capability 9.0 alone), `mma` by warps (9.0 and above), both in clusters;
`portable` needs neither clusters nor tensor cores.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...constants import attention_buffers
from ...limits import CLUSTERS_SINCE, EMULATED_TARGET, Share, capability
from ...version import Buffer, Launch, Plan, Problem, Unsupported
from ..combine import launch_combine, shapes
from .embed import embed_rows
from .embedding import PLAIN, Embedding, require_problem
from .launch import Operands
from .mma.core import attend as attend_by_warps
from .portable.core import attend as attend_anywhere
from .shape import WHOLE
from .wgmma.choose import takes
from .wgmma.core import attend as attend_by_warpgroups

__all__ = ["PLAIN", "Embedding", "Operands", "attend", "embed_rows", "hybrid", "plan", "require_problem"]

WARPGROUPS_ON = (9, 0)  # the compute capability


def attend(
    problem: Problem, *arguments: Any, target: str = EMULATED_TARGET, share: Share = WHOLE, **options: Any
) -> Launch:
    """The launch that attends to a problem on the core that is made for it, for the target and for a share of a card.

    Arguments and options are those of `wgmma.attend`. Where clusters do not hold a problem, the portable core does.

    Raises: Unsupported for more blocks than a grid has.
    """
    cc = capability(target)
    if cc == WARPGROUPS_ON and takes(problem, share):
        return attend_by_warpgroups(problem, *arguments, share=share, **options)
    if cc >= CLUSTERS_SINCE:
        try:
            return attend_by_warps(problem, *arguments, target=target, share=share, **options)
        except Unsupported as refusal:
            if refusal.kind not in ("shared_memory", "grid"):
                raise
    return attend_anywhere(problem, *arguments, **options)


def hybrid(problem: Problem, embedding: Embedding, *how: Any, **options: Any) -> tuple[Launch, Launch]:
    """A launch that embeds K, and one that embeds Q and attends; arguments as of `attend`, whose K this one is."""
    queries = replace(embedding, name=f"{embedding.name}_of_queries", keys=False)
    attention = attend(problem, queries, *how, k="k_embedded", **options)
    own = {name: options[name] for name in ("table_type", "by_name") if name in options}
    call = Operands(problem, embedding, *how, **own)
    return embed_rows(call, overlap=attention.shape.core == "wgmma"), attention


def splits_of(problem: Problem, launch: Launch) -> int:
    """How many parts an attention leaves of a row; 0 where it leaves the output."""
    if not getattr(launch.shape, "splits", False):
        return 0
    tiles = problem.batch * problem.heads * -(-problem.seq_q // launch.shape.queries)
    return math.prod(launch.grid) // (launch.cluster * tiles)


def workspace(problem: Problem, launches: Sequence[Launch]) -> dict[str, tuple[int, ...]]:
    """float32 shapes of what launches leave to those behind them; concurrent calls need memory of their own."""
    rows, splits = problem.batch * problem.heads * problem.seq_q, max(splits_of(problem, launch) for launch in launches)
    made = {"k_embedded": problem.kv_shape, **shapes(rows, problem.hdim, splits)}
    return {name: shape for name, shape in made.items() if any(name in launch.args for launch in launches)}


def combined(problem: Problem, *launches: Launch, **options: Any) -> tuple[Launch, ...]:
    """These launches, and the one that combines the parts if the last, which attends, leaves some.

    `options` are those of `Operands`.
    """
    splits = splits_of(problem, launches[-1])
    if not splits:
        return launches
    strides = Operands(problem, **options).strides("out")
    return *launches, launch_combine(problem.dtype, problem.q_shape, splits, strides)


def plan(problem: Problem, *launches: Launch, **buffers: Buffer) -> Plan:
    """The plan of `combined` launches, with the buffers that they name."""
    launches = combined(problem, *launches)
    made = {name: Buffer(shape) for name, shape in workspace(problem, launches).items()}
    return Plan(problem, attention_buffers(problem, **buffers, **made), launches)
