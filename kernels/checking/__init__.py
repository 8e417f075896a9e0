"""Checks of kernels against float64: the reference, and what a version must do."""
