"""A registry of a million artifacts: its catalog, its log and its collection of garbage, measured."""
