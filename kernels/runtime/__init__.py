"""Three consumers of a plan: `compile` (any machine), `emulator` (any machine), `gpu`."""
