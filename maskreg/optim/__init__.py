"""Optimizers whose state exists for the coordinates of a mask only."""

from maskreg.optim.adamw import MaskedAdamW
from maskreg.optim.masked import MaskedOptimizer
from maskreg.optim.sgd import MaskedSGD

__all__ = ["MaskedAdamW", "MaskedOptimizer", "MaskedSGD"]
