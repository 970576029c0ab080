"""What matrices of a language model have in common: channels of the residual stream, and neurons of an FFN."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

# Matrices that write into the stream; all others read from it.
_WRITER = re.compile(r"o_proj|out_proj|down_proj|wo|w2|c_proj|fc_?2|fc_out|ff_out|attn_out|dense|dense_4h_to_h")

# Matrices that read from it beside a c_proj. Their shape says whether they are GPT-2's Conv1D, which is [in, out].
_BESIDE_C_PROJ = re.compile(r"c_attn|c_fc")


class Stream(NamedTuple):
    """The residual stream of a model.

    Attributes:
        width: its channels; 0 where unknown.
        transposed: whether matrices of its layers are stored ``[in, out]``.
    """

    width: int
    transposed: bool = False


class Channels(NamedTuple):
    """Where a matrix has the channels of the residual stream.

    Attributes:
        axis: of the tensor as a matrix of its last axis.
        width: of the stream; in a stack of matrices, rows repeat its channels.
    """

    axis: Literal["rows", "columns"]
    width: int


class Neurons(NamedTuple):
    """Where a matrix has the neurons (hidden units) of its FFN.

    Attributes:
        ffn: what the names of the FFN's matrices begin with.
        axis: of the tensor as a matrix.
        width: neurons of the FFN.
    """

    ffn: str
    axis: Literal["rows", "columns"]
    width: int


class Shared(NamedTuple):
    """What a matrix has in common with other tensors, on each axis.

    Attributes:
        channels: of the residual stream; None where it has none.
        neurons: of its FFN, on the other axis; None where it has none.
    """

    channels: Channels | None = None
    neurons: Neurons | None = None


ALONE = Shared()
"""Nothing in common with others."""


def stream_of(tensors: Iterable[tuple[str, str, str, Sequence[int]]]) -> Stream:
    """The residual stream that a model's matrices read from and write into.

    Args:
        tensors: of each its name, its layer, its role and its shape; the largest embedding is that of the tokens.
    """
    matrices = [tensor for tensor in tensors if len(tensor[3]) == 2]
    tables = [shape for _, layer, role, shape in matrices if role == "embedding" and not layer]
    width = max(tables, key=lambda shape: shape[0] * shape[1])[1] if tables else 0
    return Stream(
        width,
        any(
            layer.isdigit() and shape[0] == width != shape[1] and any(map(_BESIDE_C_PROJ.fullmatch, name.split(".")))
            for name, layer, _, shape in matrices
        ),
    )


def channels_of(name: str, layer: str, shape: Sequence[int], stream: Stream) -> Channels | None:
    """Where a tensor has the channels; None for a vector, another tower, and where no axis is as long.

    Example: in a stream of 256, an ``up_proj`` ``[768, 256]`` has them in its columns, a ``down_proj`` ``[256, 768]``
    in its rows. Of square matrices the name decides: an ``o_proj`` writes into the stream, with its rows, and GPT-2's
    ``c_proj``, which is stored transposed, with its columns.

    Args:
        name: of the tensor.
        layer: what :func:`~maskreg.checkpoint.roles.layer_of` says.
        shape: of the tensor.
        stream: of the model.
    """
    width = stream.width
    if len(shape) < 2 or width < 2 or (layer and not layer.isdigit()):
        return None
    in_rows, in_columns = shape[-2] == width, shape[-1] == width
    if in_rows and in_columns:
        writes = any(_WRITER.fullmatch(part) for part in name.split("."))
        in_columns = writes == (stream.transposed and layer != "")
    if in_columns:
        return Channels("columns", width)
    return Channels("rows", width) if in_rows else None


def shared_of(name: str, layer: str, role: str, shape: Sequence[int], stream: Stream) -> Shared:
    """What a tensor has in common with others: channels, and on the other axis of an FFN's matrix its neurons.

    Example: neuron 5 is row 5 of a ``gate_proj`` and of the ``up_proj`` beside it, and column 5 of their ``down_proj``.
    A stack of experts has no neurons, as its rows or columns are of several FFNs.

    Args:
        name: of the tensor.
        layer: what :func:`~maskreg.checkpoint.roles.layer_of` says.
        role: what :func:`~maskreg.checkpoint.roles.role_of` says.
        shape: of the tensor.
        stream: of the model.
    """
    channels = channels_of(name, layer, shape, stream)
    if channels is None or role != "ffn" or len(shape) != 2:
        return Shared(channels)
    ffn = ".".join(name.removesuffix(".weight").split(".")[:-1])
    in_rows = channels.axis == "columns"
    return Shared(channels, Neurons(ffn, "rows" if in_rows else "columns", shape[not in_rows]))
