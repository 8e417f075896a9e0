"""On its way out: see analysis/evidence/siblings.py."""

from ..evidence.siblings import TIMERS, off_siblings, standing

__all__ = ["TIMERS", "off_siblings", "standing"]
