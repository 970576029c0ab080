"""Masked retraining: a model back at its source, trained on the coordinates of a mask."""

from maskreg.optim import MaskedAdamW, MaskedSGD
from maskreg.retrain.attach import Attachment, LostUpdateWarning, attach

__all__ = ["Attachment", "LostUpdateWarning", "MaskedAdamW", "MaskedSGD", "attach"]
