"""The use cases (`verbs`: what the command line, Python and a service call), and what they share."""
