"""Peers: what a user would otherwise use, from PyTorch, Triton, FlashInfer and FlashAttention 3."""
