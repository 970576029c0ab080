"""Tests of what a server tells about itself."""
