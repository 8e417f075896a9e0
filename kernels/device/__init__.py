"""Device functions and intrinsics that the versions share."""
