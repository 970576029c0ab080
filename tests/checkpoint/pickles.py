"""Metadata of a distributed checkpoint as the pickles of one Python have it, printed as base64 by protocol.

``tests/checkpoint/pickles.json`` holds what several versions printed. Needs Python 3.10 and nothing else: the classes
stand in for torch 2.13's, by their modules, names and what they are pickled as::

    python3.12 tests/checkpoint/pickles.py        {"3.12.1": {"2": "gAJj...", ...}}
"""

from __future__ import annotations

import base64
import json
import pathlib
import pickle
import platform
import sys
import types
from collections.abc import Callable
from enum import Enum
from typing import Any

METADATA = "torch.distributed.checkpoint.metadata"


def placed(module: str) -> Callable[[Any], Any]:
    """Let pickles name something as of another module."""

    def place(kind: Any) -> Any:
        kind.__module__ = module
        kind.__qualname__ = kind.__name__
        setattr(sys.modules.setdefault(module, types.ModuleType(module)), kind.__name__, kind)
        return kind

    return place


class Fields:
    """Attributes by name."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def record(name: str, module: str = METADATA) -> Any:
    """A class with attributes."""
    return placed(module)(type(name, (Fields,), {}))


@placed(METADATA)
class _MEM_FORMAT_ENCODING(Enum):  # torch's name
    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


@placed("torch")
class Size(tuple):  # type: ignore[type-arg]
    """Pickled by a call, as torch's is."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return Size, (tuple(self),)


@placed("torch")
class dtype:  # torch's name
    """Pickled by its name."""

    def __reduce__(self) -> str:
        return "bfloat16"


@placed("torch.serialization")
def _get_layout(name: str) -> Any:
    """Gives a layout by its name."""


class Layout:
    """Pickled by a call."""

    def __reduce__(self) -> Any:
        return _get_layout, ("torch.strided",)


@placed(METADATA)
class TensorProperties:
    """Pickled with a tuple as its state."""

    def __getstate__(self) -> Any:
        return sys.modules["torch"].bfloat16, Layout(), False, _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT, False


def metadata() -> Any:
    """A checkpoint of one tensor in one chunk, and a number."""
    sys.modules["torch"].bfloat16 = dtype()  # type: ignore[attr-defined]
    index, place = record("MetadataIndex"), record("_StorageInfo", "torch.distributed.checkpoint.filesystem")
    chunk = record("ChunkStorageMetadata")(offsets=Size((0, 0)), sizes=Size((6, 4)))
    tensor = record("TensorStorageMetadata")(properties=TensorProperties(), size=Size((6, 4)), chunks=[chunk])
    return record("Metadata")(
        state_dict_metadata={"model.a.weight": tensor, "step": record("BytesStorageMetadata")()},
        planner_data={"model.a.weight": ("model", "a.weight"), "step": ("step",)},
        storage_data={
            index(fqn="model.a.weight", offset=Size((0, 0)), index=0): place(
                relative_path="__0_0.distcp", offset=0, length=1234, transform_descriptors=None
            )
        },
        storage_meta=record("StorageMeta")(
            checkpoint_id=pathlib.PurePosixPath("run"), save_id="one", load_id=None, modules=[]
        ),
        version="1.0.0",
    )


if __name__ == "__main__":
    own = {protocol: base64.b64encode(pickle.dumps(metadata(), protocol)).decode() for protocol in range(2, 6)}
    print(json.dumps({platform.python_version(): own}))
