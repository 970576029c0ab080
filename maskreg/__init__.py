"""maskreg: git and a registry for the weight updates that post-training makes."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("maskreg")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
