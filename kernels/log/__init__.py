"""The documents' log: a file a kernel version, in plain Numba CUDA, with its mistakes."""

from .. import registry  # noqa: F401 -- a version comes behind those of before it
