"""Checkpoints in safetensors files: read span by span, written whole or not at all."""
