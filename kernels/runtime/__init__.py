"""Tools below all kernels: `compile` and `emulator` run a plan on any machine, `gpu` on a CUDA GPU."""
