"""An artifact as a change to a checkpoint: the checkpoint it applies to, and what becomes of each tensor."""
