"""Masked retraining: a model back at its source, trained on the coordinates of a mask."""

from maskreg.retrain.masks import MaskedAdamW, MaskedSGD, artifact_of, mask_of

__all__ = ["MaskedAdamW", "MaskedSGD", "artifact_of", "mask_of"]
