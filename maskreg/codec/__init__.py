"""Codecs: how the target's bits are stored, given the source's."""

from collections.abc import Callable, Mapping

from maskreg.codec.base import FLAT, Codec, Grid, grid_at, row_width
from maskreg.errors import FormatError
from maskreg.extras import upgrade_command


def _step2() -> Codec:
    # Imported late: reading names and manifests needs no codec.
    from maskreg.codec.step2 import Step2

    return Step2()


CODECS: Mapping[str, Callable[[], Codec]] = {"step2": _step2}
"""Constructors by the name that manifests use."""

DEFAULT_CODEC = "step2"
"""The codec that extraction uses."""


def get_codec(name: str) -> Codec:
    """The codec of that name."""
    if name not in CODECS:
        raise FormatError(
            f"codec {name!r} is unknown to this version (it knows {', '.join(CODECS)})",
            hint=upgrade_command(),
        )
    return CODECS[name]()


__all__ = ["CODECS", "DEFAULT_CODEC", "FLAT", "Codec", "Grid", "get_codec", "grid_at", "row_width"]
