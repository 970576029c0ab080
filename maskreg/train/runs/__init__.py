"""Training runs: one run in one folder, from a request to the verification of what it changed."""
