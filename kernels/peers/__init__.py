"""Peers: what a user would otherwise use, from PyTorch, Triton, FlashInfer and FlashAttention 3."""

from .. import registry  # noqa: F401 -- a version comes behind those of before it
