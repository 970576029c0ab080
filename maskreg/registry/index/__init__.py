"""The catalog beside a store: opened, filled, followed, repaired and searched."""
