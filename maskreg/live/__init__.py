"""A model in memory: which of its parameters a checkpoint's tensors are, and which part of each this process holds."""
