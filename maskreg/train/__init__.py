"""Masked retraining: a model starts from its source, and only the coordinates of a mask are trained."""

from maskreg.train.hooks.attach import Attachment, LostUpdateWarning, attach
from maskreg.train.masks import artifact_of, mask_of
from maskreg.train.optimizers import Masked, MaskedAdamW, changed
from maskreg.train.saving import save_model

__all__ = [
    "Attachment",
    "LostUpdateWarning",
    "Masked",
    "MaskedAdamW",
    "artifact_of",
    "attach",
    "changed",
    "mask_of",
    "save_model",
]
