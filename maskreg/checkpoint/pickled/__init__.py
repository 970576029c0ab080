"""What ``torch.save`` writes, read without torch and without running anything: archives, pickles, tensors in them."""
