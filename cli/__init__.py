"""The command line: each command parses, calls a use case, prints, and decides nothing."""
