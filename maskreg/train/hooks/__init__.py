"""Masks in training loops and trainers of other libraries."""
