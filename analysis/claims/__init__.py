"""Claims of the documents, as Python: a claim is a function of a card's evidence that yields its tests.

Nothing in these modules is a verdict: judge.py gives one by rule.py. README.md says when a claim or a threshold was
changed, and why.
"""
