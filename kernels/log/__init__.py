"""The documents' log: a file a kernel version, in plain Numba CUDA, with its mistakes."""
