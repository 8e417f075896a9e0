"""Models that use the kernels, small enough to read at once."""
