"""What the documents claim, as Python: a claim is a function of a card's evidence that yields its tests."""
