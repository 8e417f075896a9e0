"""Memory with its shadow state: which bytes exist, which were written, who accessed them last, and what orders
accesses.
"""
