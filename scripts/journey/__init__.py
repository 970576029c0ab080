"""The demo: a small model is distilled, and its update travels from one person to another."""
