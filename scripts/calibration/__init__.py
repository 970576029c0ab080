"""How often the verdict of ``compare`` is wrong, how small an effect it sees, and how often its intervals cover."""
