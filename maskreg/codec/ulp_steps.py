"""ULP steps: how many representable numbers lie between a code and its new value, as one token of 64.

A ULP step is the difference of the magnitudes (the low 15 bits of the codes), so neighboring bf16 numbers are one step
apart, also across a power of two. Most are short, so short ones have a token of their own; long ones share a token per
size class and add extra bits, as lengths do in Deflate. With ``v = token - 32``:

    v                 ULP step                             extra bits
    -16 .. 16         v                                    none
    17 .. 27          2^d + x + 1,     d = v - 13          d bits: x
    -27 .. -17        -(2^d + x + 1),  d = -v - 13         d bits: x
    31 (token 63)     literal: the new code itself         16 bits

So d counts from 4 (17 to 32 steps) to 14 (16,385 to 32,768 steps), and every magnitude can be reached. A change of sign
is always a literal: steps are taken between magnitudes, and sign changes are too rare to deserve tokens.

    source 0x3F80 (1.0), target 0x3F83       step +3      token 35
    source 0xBF80 (-1.0), target 0xBF7F      step -1      token 31: negative is toward zero for both signs
    source 0x3F80, target 0x3F94             step +20     d = 4 (17 to 32 steps), x = 20 - 16 - 1 = 3:
                                                          token 32 + 13 + 4 = 49, extra bits 3 in 4 bits
    source 0x3F80, target 0xBF80             sign change  token 63, extra bits 0xBF80

Where a prediction says which way a coordinate moved (see :mod:`maskreg.codec.contexts`), the sign of v is flipped so
that a positive v agrees with the prediction: the tokens then have one likely side instead of two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.native import library
from maskreg.parallel import Buffers

EXPONENTS = 256
"""Values of a code's exponent field."""

TOKENS = 64
"""Size of the alphabet."""

MIDDLE = 32
"""Token of a ULP step of 0."""

NEAREST = 16
"""The longest ULP step without extra bits."""

LITERAL = 63
"""Token of a code that is stored whole."""

FEWER_BITS = 13
"""A long ULP step has ``|v|`` minus this many extra bits."""

LITERAL_BITS = 16
"""Extra bits of a literal."""

COUNTERS = 4
"""Counters per key, for which kernels need room."""

_BUFFERS = Buffers()

Tokens = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]


def tokens_of(source: Codes, target: Codes, tokens: Tokens, counts: Counts) -> None:
    """Fill the tokens of all coordinates, not flipped, and add how many of each there are by exponent of the source.

    Counts, ``[256, 64]``, serve to choose between plans. From 65,536 coordinates on they are estimated by a sample,
    unless few of it moved.
    """
    compiled = library()
    arrays = compiled.read(source), compiled.read(target)
    scratch = compiled.write(_BUFFERS.array("counters", COUNTERS * counts.size, np.uint32))
    compiled.lib.maskreg_tokens_of(*arrays, source.size, compiled.write(tokens), compiled.write(counts), scratch)
