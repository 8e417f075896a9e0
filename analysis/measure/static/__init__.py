"""Evidence that needs no GPU: exact counts, resources, launches, and what the tests notice."""
