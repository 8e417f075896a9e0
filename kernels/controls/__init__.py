"""Controls: kernels of the log in CUDA C++, launched as their ports are. See `kernels/controls/register.py`."""
