"""What a server tells about itself: request ids, structured logs, metrics and traces."""
