"""Versions with one thing changed, which show what that one thing costs. See `kernels/ablations/ablate.py`."""
