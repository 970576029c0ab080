"""Fixtures that tests of several folders share."""

from __future__ import annotations

from tests.service.labs import filled, lab, shared

__all__ = ["filled", "lab", "shared"]
