"""Overlap: what several masks share, beside chance."""
