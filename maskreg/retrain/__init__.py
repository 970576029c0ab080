"""Masked retraining: a model back at its source, trained on the coordinates of a mask."""

from maskreg.optim import MaskedAdamW, MaskedSGD

__all__ = ["MaskedAdamW", "MaskedSGD"]
