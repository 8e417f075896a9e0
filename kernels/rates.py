"""Numbers that the host makes for kernels: RoPE's rates in two floats, ALiBi's slopes, tables of embeddings."""

import numpy as np
import torch

from .constants import FREQUENCY_BASE, MUST_BE, require
from .version import TABLES, Problem

TABLE_DTYPES = {"float32": torch.float32, "float16": torch.float16, "float8": torch.float8_e4m3fn}
TABLES_OF = {"sinusoidal": TABLES, "learned": tuple(TABLE_DTYPES)}  # the other families compute their embedding
LEARNED_DEVIATION, LEARNED_SEED = 0.5, 7


def rates_of_turning(rotary_dim: int, base: float = FREQUENCY_BASE) -> np.ndarray:
    """float32[pairs, 2]: the rate of each pair in half turns per position, and its rounding error.

    Kernels rotate two pairs at a time: after an odd number of pairs one with rate 0 follows.
    """
    pairs = rotary_dim // 2
    turning = np.append(base ** (-np.arange(pairs) / max(pairs, 1)) / np.pi, np.zeros(pairs % 2))
    high = turning.astype(np.float32)
    return np.stack([high, (turning - high).astype(np.float32)], axis=1)


def rates_of(rotary_dim: int, pairs: int, step: int, base: float = FREQUENCY_BASE) -> np.ndarray:
    """float32[2, pairs, 2]: `rates_of_turning`, and (cos - 1, sin) of the angle of `step` positions.

    Pairs from rotary_dim on are 0. In the kernel the steps would take 15 operations a pair before the first batch.
    """
    made, turning = np.zeros((2, pairs, 2), np.float32), rotary_dim // 2
    angle = step * float(base) ** (-np.arange(0, rotary_dim, 2) / max(rotary_dim, 1))
    made[0, :turning] = rates_of_turning(rotary_dim, base)[:turning]
    made[1, :turning] = np.stack([-2 * np.sin(angle / 2) ** 2, np.sin(angle)], axis=1)  # cos - 1 would lose digits
    return made


def alibi_slopes(heads: int) -> np.ndarray:
    """float64[heads]: 2^(-8 (h + 1) / heads) where heads is a power of two.

    Otherwise the slopes of the next smaller power of two, followed by every other slope of twice that (Press, Smith and
    Lewis, Train Short, Test Long, 2022).
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    return np.concatenate((slopes, alibi_slopes(2 * power)[::2][: heads - power])) if power < heads else slopes


def slopes_of(batch: int, heads: int) -> np.ndarray:
    return np.tile(alibi_slopes(heads), batch).astype(np.float32)


def angles(positions: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """`[positions, dim // 2]`: position * 10000^(-2i / dim), computed in `dtype`."""
    pair = torch.arange(0, dim, 2, dtype=dtype, device=positions.device)
    inv_freq = 1.0 / FREQUENCY_BASE ** (pair / dim)
    return positions.to(dtype)[:, None] * inv_freq


def require_table(problem: Problem) -> None:
    """Raise Unsupported for a table that the family lacks, or one whose first position comes after the first query."""
    allowed = TABLES_OF.get(problem.family, ("computed",))
    takes = f"table is {{needed}}; family {problem.family} takes {{allowed}}"
    require(problem.table in allowed, "table", problem.table, ", ".join(allowed), takes)
    reaches = problem.table == "computed" or problem.q_offset >= 0
    require(reaches, "q_offset", problem.q_offset, "0 or more, where a table begins", MUST_BE)


def exact_table(problem: Problem) -> torch.Tensor:
    """float64[positions, hdim]: what is added to a query or a key at each position, before it is rounded for storage.

    Learned values are drawn from a normal distribution with a standard deviation of 0.5; a row does not depend on how
    many there are.
    """
    rows = max(problem.seq_k, problem.q_offset + problem.seq_q)
    if problem.family == "learned":
        drawn = np.random.default_rng(LEARNED_SEED).standard_normal((rows, problem.hdim))
        return torch.from_numpy(LEARNED_DEVIATION * drawn)
    angle = angles(torch.arange(rows), problem.hdim, torch.float64)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


def stored_table(problem: Problem) -> torch.Tensor:
    """`exact_table` in the dtype of the problem's table; float8 is e4m3. Raises: Unsupported without a table."""
    require_table(problem)
    stored = "table is {needed}; what is stored is {allowed}"
    require(problem.table != "computed", "table", problem.table, ", ".join(TABLE_DTYPES), stored)
    return exact_table(problem).to(TABLE_DTYPES[problem.table])
