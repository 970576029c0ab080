"""What masked optimizers are made of; runs wherever torch does."""

from maskreg.train.optim.masked import MaskedOptimizer

__all__ = ["MaskedOptimizer"]
