"""Commands for work on maskreg itself; none is installed."""
