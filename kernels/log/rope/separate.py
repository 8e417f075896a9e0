"""RoPE, separate: rotate Q, rotate K, then attention; three launches and two host syncs.

The baseline of every RoPE comparison in the log. The rotate kernel takes the index of a token modulo 64 as its
position, whatever the sequence length. That is right at S = 64, and for a single head of fewer tokens. With several
heads of fewer than 64 tokens it reads past the end of the tables.

Source: RoPE Fusion Implementation Log, the separate path of every benchmark.
"""

import numpy as np
from numba import cuda

from ...checking.models import Array, rotate_pairs, scaled_scores, softmax
from ...constants import THREADS
from ...device import cint, ld4, make_float4, rotate, st4
from ...version import SYNC, Buffer, Hazard, Launch, Plan, Problem, register
from ..attention.online_fixed import launch_attention
from ..plan import REDUCTION_RACE, block_per_token, log_plan, require_log_problem
from .tables import rope_tables

POSITIONS = 64


def rotate_tokens(x, cos, sin, rotated, hdim, rotary_dim):
    token = cint(cuda.blockIdx.x)
    tid = cint(cuda.threadIdx.x)
    row = token * hdim
    table_row = token % POSITIONS * rotary_dim
    dim = 4 * tid
    while dim < rotary_dim:
        pairs = ld4(x, row + dim)
        c = ld4(cos, table_row + dim)
        s = ld4(sin, table_row + dim)
        x0, x1 = rotate(pairs.x, pairs.y, c.x, s.x)
        x2, x3 = rotate(pairs.z, pairs.w, c.z, s.z)
        st4(rotated, row + dim, make_float4(x0, x1, x2, x3))
        dim += 4 * THREADS
    dim = rotary_dim + tid
    while dim < hdim:
        rotated[row + dim] = x[row + dim]
        dim += THREADS


def launch_rotate(problem: Problem, x: str, rotated: str) -> Launch:
    """Rotate the first rotary_dim dims of every token of buffer `x` and store it in `rotated`."""
    return block_per_token(rotate_tokens, problem, f"{x} cos sin {rotated}", problem.hdim, problem.rotary_dim)


def padded_tables(problem: Problem) -> dict[str, Buffer]:
    """The cos and sin tables, with padding for the rows that `rotate_tokens` reads past their end."""
    missing_rows = max(0, POSITIONS - problem.seq_k) if reads_past_tables(problem) else 0
    return rope_tables(problem, padding=missing_rows * problem.rotary_dim)


def reads_past_tables(problem: Problem) -> bool:
    return problem.seq_k < min(POSITIONS, problem.batch * problem.heads * problem.seq_k)


def position_defect(problem: Problem) -> str:
    """The defect of token modulo 64 for `problem`; an empty string where it is the position."""
    if reads_past_tables(problem):
        return f"later heads take table rows {problem.seq_k}..{POSITIONS - 1}, behind the end of the tables"
    if problem.seq_k > POSITIONS or (problem.seq_k < POSITIONS and problem.batch * problem.heads > 1):
        return f"positions are token modulo {POSITIONS}, and seq_k is {problem.seq_k}"
    return ""


def position_hazards(problem: Problem) -> tuple[Hazard, ...]:
    if not reads_past_tables(problem):
        return ()
    why = "the position is the token's index modulo 64, and the tables have a row a position"
    return tuple(Hazard("out_of_bounds", "rotate_tokens", table, why) for table in ("cos", "sin"))


def token_positions(problem: Problem) -> Array:
    """`[batch, heads, seq_k]`: the position by which each token is rotated; NaN past the end of the tables."""
    position = np.arange(problem.batch * problem.heads * problem.seq_k) % POSITIONS
    return np.where(position >= problem.seq_k, np.nan, position).reshape(problem.batch, problem.heads, problem.seq_k)


def wrong_output(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """In float64: Q and K rotated by their token index modulo 64."""
    q, k = (rotate_pairs(x, token_positions(problem), problem.rotary_dim) for x in (q, k))
    return softmax(scaled_scores(problem, q, k)) @ v


@register(title="Separate", wrong_output=wrong_output)
def rope_separate(problem: Problem) -> Plan:
    """Plan float32 RoPE attention; wrong where a position is not the token index modulo 64. Raises: Unsupported."""
    require_log_problem(problem, "rope")
    return log_plan(
        problem,
        launch_rotate(problem, "q", "q_rotated"),
        launch_rotate(problem, "k", "k_rotated"),
        SYNC,
        launch_attention(problem, "q_rotated", "k_rotated"),
        SYNC,
        defect=position_defect(problem),
        hazards=(*position_hazards(problem), REDUCTION_RACE),
        buffers={"q_rotated": Buffer(problem.q_shape), "k_rotated": Buffer(problem.kv_shape), **padded_tables(problem)},
    )
