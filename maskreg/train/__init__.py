"""Masked retraining: a model back at its source, trained on the coordinates of a mask."""

from maskreg.train.hooks.attach import Attachment, LostUpdateWarning, attach
from maskreg.train.hooks.named import MaskedAdamW, MaskedSGD, artifact_of, mask_of

__all__ = ["Attachment", "LostUpdateWarning", "MaskedAdamW", "MaskedSGD", "artifact_of", "attach", "mask_of"]
