"""What single chapters show."""
