"""Codecs: how the target's bits are stored, given the source's."""

from maskreg.codec.base import BLOCK_NUMEL, Codec
from maskreg.codec.xor import Xor
from maskreg.errors import FormatError

CODECS: dict[str, Codec] = {codec.name: codec for codec in (Xor(),)}
"""Every codec by the name that manifests use."""

DEFAULT_CODEC = "xor1"
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
    return CODECS[name]


__all__ = ["BLOCK_NUMEL", "CODECS", "DEFAULT_CODEC", "Codec", "get_codec"]
