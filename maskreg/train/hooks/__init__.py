"""Masks in loops and trainers that are not ours."""
