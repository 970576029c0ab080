"""Optimizers whose state exists for the coordinates of a mask only."""

from maskreg.train.optim.adamw import MaskedAdamW
from maskreg.train.optim.masked import MaskedOptimizer
from maskreg.train.optim.sgd import MaskedSGD

__all__ = ["MaskedAdamW", "MaskedOptimizer", "MaskedSGD"]
