"""The command line: each command parses, calls a room, prints, and decides nothing."""
