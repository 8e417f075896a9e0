"""Peers: what a user would otherwise use, from PyTorch, Triton and FlashInfer."""

from .. import registry  # noqa: F401 -- a version comes behind those of before it
