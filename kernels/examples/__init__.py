"""Small models that use the kernels."""
