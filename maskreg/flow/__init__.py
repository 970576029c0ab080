"""The pipelines that join rooms: extract an update from two checkpoints, apply it to a source."""
