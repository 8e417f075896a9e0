"""Controls: kernels of the log in CUDA C++, with the same launches as their Numba ports. See `register.py`."""
