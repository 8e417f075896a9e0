"""Device functions and intrinsics that versions share."""
