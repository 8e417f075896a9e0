"""What a version's result is held against: float64, allowances, and what a wrong version computes instead."""
