"""The V8 cores: attention in one launch with a place for an embedding."""

from .embedding import Embedding, require_problem
from .mma import attend

__all__ = ["Embedding", "attend", "require_problem"]
