"""Memory with its shadow state: which bytes exist and were written, who accessed them last, what orders accesses."""
