"""The write-up and the cards that were measured, side by side: speedups, claims and findings."""
