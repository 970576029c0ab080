"""Codecs: how the target's bits are stored, given the source's."""

from collections.abc import Callable, Mapping

from maskreg.codec.base import Codec
from maskreg.codec.grid import FLAT, Grid, grid_at, row_width
from maskreg.errors import FormatError


def _step1() -> Codec:
    # Not above: what only reads names and manifests has no use for compiled loops.
    from maskreg.codec.step1 import Step1

    return Step1()


CODECS: Mapping[str, Callable[[], Codec]] = {"step1": _step1}
"""What makes each codec, by the name that manifests use."""

DEFAULT_CODEC = "step1"
"""What extraction writes."""


def get_codec(name: str) -> Codec:
    """The codec of that name.

    Raises:
        FormatError: this version knows none.
    """
    if name not in CODECS:
        raise FormatError(
            f"codec {name!r} is unknown to this version (it knows {', '.join(CODECS)})",
            hint="pip install --upgrade maskreg",
        )
    return CODECS[name]()


__all__ = ["CODECS", "DEFAULT_CODEC", "FLAT", "Codec", "Grid", "get_codec", "grid_at", "row_width"]
