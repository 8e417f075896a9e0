"""Memory with its shadows: which bytes exist, which were written, who touched them last, and who is ordered how."""
