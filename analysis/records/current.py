"""On its way out: see analysis/evidence/current.py."""

from ..evidence.current import Row, called_today, complete_runs, current, is_current, outdated, today

__all__ = ["Row", "called_today", "complete_runs", "current", "is_current", "outdated", "today"]
