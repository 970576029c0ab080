"""Moving artifacts between registries: push, pull, export and import."""
