"""Versions with one thing changed, which tell what that one thing costs. See `kernels/ablations/ablate.py`."""
