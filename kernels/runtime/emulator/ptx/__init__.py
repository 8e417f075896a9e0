"""PTX text, and what can be told from it without executing it."""
