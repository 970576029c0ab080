"""Masks to compare a mask with."""
