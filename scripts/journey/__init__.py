"""The demo: the update of a small model travels from one person to another, and is judged."""
