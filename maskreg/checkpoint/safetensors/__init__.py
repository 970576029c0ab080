"""Checkpoints in safetensors files, one or sharded with an index: read span by span, written whole or not at all."""
