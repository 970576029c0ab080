"""Who may do what: projects, their members, and tokens."""
