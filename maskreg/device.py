"""Devices for block work: numpy on the CPU or torch on a GPU, with bit-identical results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from maskreg.errors import ConfigError, UsageError
from maskreg.extras import requiring

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from maskreg.codec import Codec
    from maskreg.codec.base import Block
    from maskreg.tensors.rules import Rule

    Codes = npt.NDArray[np.uint16]
    Bools = npt.NDArray[np.bool_]


class Device(Protocol):
    """The two operations that a GPU can take over. Safe to call from many threads."""

    def moved(self, rule: Rule, source: Codes, target: Codes, result: Bools | None = None) -> Bools:
        """Which coordinates moved, in ``result`` if given; ``source`` and ``target`` are bf16 codes, uint16 ``[n]``."""

    def decode(self, codec: Codec, context: Codes, block: Block, values: Codes | None = None) -> Codes:
        """Decode one block; ``context`` and the result are uint16 ``[n]``; fills ``values``, if given."""


_TILE = 1 << 16  # coordinates whose intermediate results fit a core's cache


class HostDevice:
    """numpy on the CPU."""

    def moved(self, rule: Rule, source: Codes, target: Codes, result: Bools | None = None) -> Bools:
        """Which coordinates moved."""
        import numpy as np

        result = np.empty(source.shape, np.bool_) if result is None else result
        for start in range(0, len(source), _TILE):
            tile = slice(start, start + _TILE)
            result[tile] = rule.moved(source[tile], target[tile])
        return result

    def decode(self, codec: Codec, context: Codes, block: Block, values: Codes | None = None) -> Codes:
        """Decode one block."""
        return codec.decode(context, block, values)


class TorchDevice:
    """A torch device. Only codes and blocks are copied to it; hashing stays on the CPU."""

    def __init__(self, name: str) -> None:
        import torch

        self._device = torch.device(name)

    def moved(self, rule: Rule, source: Codes, target: Codes, result: Bools | None = None) -> Bools:
        """Which coordinates moved."""
        moved: Bools = rule.moved(self._up(source), self._up(target)).cpu().numpy()
        return moved if result is None else _copied(moved, result)

    def decode(self, codec: Codec, context: Codes, block: Block, values: Codes | None = None) -> Codes:
        """Decode one block."""
        import numpy as np

        with own_stream(self._device):
            (decoded,) = codec.decode_tensors([self._up(context)], [block])
            codes: Codes = decoded.cpu().numpy().view(np.uint16)
        return codes if values is None else _copied(codes, values)

    def _up(self, codes: Codes) -> torch.Tensor:
        import numpy as np
        import torch

        # from_numpy requires a writable buffer, even though nothing writes to it.
        signed = np.require(codes.view(np.int16), requirements=["C", "W"])
        return torch.from_numpy(signed).to(self._device)


def _copied(array: npt.NDArray[Any], into: npt.NDArray[Any]) -> npt.NDArray[Any]:
    into[:] = array
    return into


_idle_streams: dict[torch.device, list[torch.cuda.Stream]] = {}
"""Reused: the caching allocator keeps freed memory for the stream that used it."""


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Run a thread's work on a GPU stream of its own, because the blocks of one thread do not fill a GPU.

    The stream is synchronized at the end, also after an error. On a CPU this does nothing.
    """
    if device.type != "cuda":
        yield
        return
    import torch

    idle = _idle_streams.setdefault(device, [])
    try:
        stream = idle.pop()
    except IndexError:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        stream.synchronize()
        idle.append(stream)


def open_device(name: str | Device) -> Device:
    """The device called ``cpu``, ``cuda`` or ``cuda:N``; an open one is returned as it is."""
    if not isinstance(name, str):
        return name
    if name == "cpu":
        return HostDevice()
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (index == "" or index.isdecimal()):
        raise UsageError(f"device {name!r} is not known", hint="use cpu or cuda")
    with requiring(f"device {name!r}"):
        import torch

    if int(index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"no device {name!r}: torch sees no such GPU", hint="use the CPU", options={"device": "cpu"})
    return TorchDevice(f"cuda:{int(index or 0)}")
