"""What is true of tensors wherever they are stored: dtypes, casts, blocks and leaves."""
