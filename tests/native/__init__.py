"""Tests of the native room."""
