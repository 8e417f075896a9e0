"""What a user would pick instead: PyTorch, Triton, FlashInfer."""
