"""On its way out: see analysis/evidence/pool.py."""

from ..evidence.pool import RATIO, RATIOS, RUNS, by_run, coverage, covered, main, pooled, pools, ratios_of

__all__ = ["RATIO", "RATIOS", "RUNS", "by_run", "coverage", "covered", "main", "pooled", "pools", "ratios_of"]
