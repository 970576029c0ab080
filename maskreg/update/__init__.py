"""An artifact as a change to a checkpoint: which checkpoint it is of, and what becomes of each tensor."""
