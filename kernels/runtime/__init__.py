"""Three consumers of a plan: `compile` and `emulator` run on any machine, `gpu` needs a CUDA GPU."""
