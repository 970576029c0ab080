"""Geometry: figures of an update, and of its mask by magnitude."""
