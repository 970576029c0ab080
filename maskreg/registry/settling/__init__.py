"""How naming an artifact and collecting garbage keep out of each other's way, without a lock."""
