"""Sinusoidal versions with one thing changed."""

import numpy as np

from ...checking.models import Array, scaled_scores, softmax
from ...constants import FREQUENCY_BASE
from ...version import Problem
from .ablate import ablate


def embedded(problem: Problem, x: Array, pair: Array) -> Array:
    """x plus the sine and cosine, at its position, of the pairs in `pair`, one for every pair of its dims."""
    angle = np.arange(problem.seq_k)[:, None] * FREQUENCY_BASE ** (-2.0 * pair / problem.hdim)
    return x + np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(problem.seq_k, problem.hdim)


def first_pair_embedded(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """The output of a version that adds the sine and cosine of the first pair to every pair."""
    q, k = (embedded(problem, x, np.zeros(problem.hdim // 2)) for x in (q, k))
    return softmax(scaled_scores(problem, q, k)) @ v


def keys_embedded(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """The output of a version that does not embed Q."""
    return softmax(scaled_scores(problem, q, embedded(problem, k, np.arange(problem.hdim // 2)))) @ v


ablate(
    "sinusoidal_v1",
    "sinusoidal_v1_registers",
    title="V1 with the table values in registers",
    change="a row's first sine and cosine, read before the dot product, in place of its own of every dim",
    wrong_output=first_pair_embedded,
    diff="""
    + first_sin_q, first_cos_q = sin_q[0], cos_q[0]
    + first_sin_k, first_cos_k = sin_k[0], cos_k[0]
      dim = cint(0)
      while dim < hdim:
          if dim % 2 == 0:
    -         a = q_row[dim] + sin_q[dim]
    -         b = k_row[dim] + sin_k[dim]
    +         a = q_row[dim] + first_sin_q
    +         b = k_row[dim] + first_sin_k
          else:
    -         a = q_row[dim] + cos_q[dim]
    -         b = k_row[dim] + cos_k[dim]
    +         a = q_row[dim] + first_cos_q
    +         b = k_row[dim] + first_cos_k

    - return log_plan(problem, attend, hazards=(REDUCTION_RACE,), buffers=sinusoidal_tables(problem))
    + defect = "every pair has the first one's embedding" if problem.seq_k > 1 and problem.hdim > 2 else ""
    + return log_plan(problem, attend, defect=defect, hazards=(REDUCTION_RACE,), buffers=sinusoidal_tables(problem))
    """,
)

ablate(
    "sinusoidal_v5",
    "sinusoidal_v5_k_embedded",
    title="V5 with K embedded by its own kernel",
    change="K embedded once by its own kernel, from the tables; Q still for every key",
    diff="""
    - from ...version import Plan, Problem, register
    + from ...version import Buffer, Plan, Problem, register
    + from .separate_float4 import launch_embed
    + from .tables import sinusoidal_tables

    - position = float32(key)

    - (a.x + fast_sin(float32(query) * freq.x)) * (b.x + fast_sin(position * freq.x))
    - + (a.y + fast_cos(float32(query) * freq.y)) * (b.y + fast_cos(position * freq.y))
    - + (a.z + fast_sin(float32(query) * freq.z)) * (b.z + fast_sin(position * freq.z))
    - + (a.w + fast_cos(float32(query) * freq.w)) * (b.w + fast_cos(position * freq.w))
    + (a.x + fast_sin(float32(query) * freq.x)) * b.x
    + + (a.y + fast_cos(float32(query) * freq.y)) * b.y
    + + (a.z + fast_sin(float32(query) * freq.z)) * b.z
    + + (a.w + fast_cos(float32(query) * freq.w)) * b.w

    - attend = block_per_query(attention, problem, "q k v out", online_layout(frequency=problem.hdim))
    - return log_plan(problem, attend, hazards=(REDUCTION_RACE,))
    + attend = block_per_query(attention, problem, "q k_embedded v out", online_layout(frequency=problem.hdim))
    + buffers = {"k_embedded": Buffer(problem.kv_shape), **sinusoidal_tables(problem)}
    + embed = launch_embed(problem, "k", "k_embedded")
    + return log_plan(problem, embed, attend, hazards=(REDUCTION_RACE,), buffers=buffers)
    """,
)

ablate(
    "sinusoidal_hybrid_v1",
    "sinusoidal_hybrid_v1_no_embedding",
    title="Hybrid V1 without embedding Q",
    change="the query goes to shared memory as it is; no table is read and nothing added",
    wrong_output=keys_embedded,
    diff="""
    - a = ld4(q_row, dim)
    - s = ld4(sin, query * hdim + dim)
    - c = ld4(cos, query * hdim + dim)
    - st4(shared, EXTRA + dim, make_float4(a.x + s.x, a.y + c.y, a.z + s.z, a.w + c.w))
    + st4(shared, EXTRA + dim, ld4(q_row, dim))

    - return log_plan(problem, embed, attend, SYNC, hazards=(REDUCTION_RACE,), buffers=buffers)
    + wrong = "Q is not embedded" if problem.seq_k > 1 else ""
    + return log_plan(problem, embed, attend, SYNC, defect=wrong, hazards=(REDUCTION_RACE,), buffers=buffers)
    """,
)
