"""The version of maskreg: the one place that holds it."""

__version__ = "0.1.0"
"""Read by pyproject.toml, too."""
