"""Versions with one thing changed, which show what that one thing costs. See `kernels/log/ablations/ablate.py`."""
