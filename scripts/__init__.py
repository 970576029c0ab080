"""Commands for those who work on maskreg; none of them is installed."""
