"""Combining: a new mask from several."""
