"""PTX text, and what can be derived from it without executing it."""
