"""What the launches of the V8 cores have in common."""

from __future__ import annotations

from typing import Any

from ..version import Kernel, Launch, Problem


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()


def launch(kernel: Kernel, shape: Any, problem: Problem, buffers: tuple[str, ...], embedded_dim: int) -> Launch:
    """A cluster for each tile of queries of each head."""
    tiles = -(-problem.seq_q // shape.queries)
    return Launch(
        kernel,
        grid=(problem.batch * problem.kv_heads * shape.cluster, problem.heads // problem.kv_heads, tiles),
        block=(shape.threads,),
        args=(
            *buffers,
            problem.seq_q,
            problem.seq_k,
            problem.hdim,
            embedded_dim,
            problem.q_offset,
            int(problem.causal),
            problem.softmax_scale,
        ),
        shared=shape.layout,
        cluster=shape.cluster,
    )
