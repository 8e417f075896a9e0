"""Peers: what a user would otherwise use, from PyTorch, Triton and FlashInfer."""
