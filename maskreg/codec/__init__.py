"""Codecs: how the target's bits are stored, given the source's."""

from collections.abc import Callable, Mapping

from maskreg.codec.base import Codec
from maskreg.codec.grid import FLAT, Grid, grid_at, row_width
from maskreg.errors import FormatError


def _step1() -> Codec:
    # Imported late: whoever only reads names and manifests needs no compiler.
    from maskreg.codec.step1 import Step1

    return Step1()


CODECS: Mapping[str, Callable[[], Codec]] = {"step1": _step1}
"""Constructors by the name that manifests use."""

DEFAULT_CODEC = "step1"
"""The codec that extraction uses."""


def get_codec(name: str) -> Codec:
    """The codec of that name.

    Raises:
        FormatError: this version has none.
    """
    if name not in CODECS:
        raise FormatError(
            f"codec {name!r} is unknown to this version (it knows {', '.join(CODECS)})",
            hint="pip install --upgrade maskreg",
        )
    return CODECS[name]()


__all__ = ["CODECS", "DEFAULT_CODEC", "FLAT", "Codec", "Grid", "get_codec", "grid_at", "row_width"]
