"""What `maskreg retrain` does: one run in one folder, from its options to a verdict on what it changed."""
