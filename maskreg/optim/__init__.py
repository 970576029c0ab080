"""Optimizers whose state exists for the coordinates of a mask only."""

from maskreg.optim.masked import MaskedAdamW, MaskedOptimizer, MaskedSGD

__all__ = ["MaskedAdamW", "MaskedOptimizer", "MaskedSGD"]
