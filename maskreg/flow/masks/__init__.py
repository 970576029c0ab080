"""Masks from elsewhere: stored as artifacts."""
