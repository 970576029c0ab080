"""A server with buckets, found by the AWS chain."""

from tests.buckets import bucket, server

__all__ = ["bucket", "server"]
