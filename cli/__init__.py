"""The command line: one command per file; each parses, calls a room, prints, and decides nothing."""
