"""Learned V1: rows of a learned table, added to Q and K inside the V8 core.

Change from sinusoidal_v6: the added rows come from a table instead of sines; the core is the same.

Source: beyond the documents, which name it as future work.
"""

from ..flash.cluster import require_problem
from ..version import Plan, Problem, register
from .table import add_rows


@register(
    title="Full fusion over a cluster",
    parent="sinusoidal_v6",
    source="beyond the documents",
    change="rows of a table of float32, halves or float8 in place of sines",
    beyond=True,
    variant_of="rope_v8",
)
def learned_v1(problem: Problem, target: str) -> Plan:
    """Plan float32 attention with the problem's learned `table`. Raises: Unsupported."""
    require_problem(problem, "learned")
    return add_rows(problem, target)
