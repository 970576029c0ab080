"""Tests of chains of links."""
