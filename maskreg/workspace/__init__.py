"""The use cases: what the command line, Python and a service call."""
