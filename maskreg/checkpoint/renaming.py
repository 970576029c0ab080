"""Names: the tensors of a checkpoint under the names that another one has for them.

Training wrappers put parts into names, and model classes differ in what stands in front of them::

    model.layers.0.mlp.up_proj.weight                         as save_pretrained writes it
    _orig_mod.model.layers.0.mlp.up_proj.weight               torch.compile
    module.model.layers.0._orig_mod.mlp.up_proj.weight        DistributedDataParallel, layers compiled
    layers.0.mlp.up_proj.weight                               the inner model alone

Without these parts all four are ``layers.0.mlp.up_proj.weight``. Two tensors are the same when they have the same name
without them and the same shape, and no other has that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from maskreg.bucket import Location
from maskreg.checkpoint.base import Blockwise, Checkpoint, aliases_of, expect, locations_of, place_of, remarks_on
from maskreg.checkpoint.statedict import FRONT, WRAPPERS
from maskreg.closing import Closing
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.names import shown
from maskreg.words import counted

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.checkpoint.base import Memory

_MODEL_FRONT = FRONT | {"model", "base_model"}
"""Parts at the front of a name that depend on what wraps the model, and on its class."""

ValueT = TypeVar("ValueT")


class RenamedCheckpoint(Closing):
    """A checkpoint under other names; see :class:`maskreg.checkpoint.base.Checkpoint`.

    Attributes:
        remarks: what must be said of it, one sentence each.
        locations: where everything lies that decides its values.
        blockwise: whether it is computed block by block.
    """

    def __init__(self, checkpoint: Checkpoint, names: Mapping[str, str], remarks: tuple[str, ...]) -> None:
        """Wrap an open checkpoint, which is closed with this one.

        Args:
            checkpoint: that holds the tensors.
            names: every name, and what the checkpoint calls it.
            remarks: what must be said of it.
        """
        self.format, self.path, self.hub = checkpoint.format, checkpoint.path, checkpoint.hub
        self.remarks, self.locations = remarks, locations_of(checkpoint)
        self.blockwise = isinstance(checkpoint, Blockwise) and checkpoint.blockwise
        self._checkpoint, self._names = checkpoint, names
        stored = checkpoint.tensors
        self.tensors: Mapping[str, TensorInfo] = {
            name: TensorInfo(name, stored[own].dtype, stored[own].shape) for name, own in names.items()
        }

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor; see :meth:`maskreg.checkpoint.base.Checkpoint.read`."""
        return self._checkpoint.read(self._names[name], start, stop, into)

    def expect(self, name: str, start: int, stop: int) -> int:
        """Hand on what is read soon; see :class:`maskreg.checkpoint.base.Expecting`."""
        return expect(self._checkpoint, self._names.get(name, ""), start, stop)

    def place_of(self, name: str, start: int) -> str:
        """The file that holds a tensor; see :class:`maskreg.checkpoint.base.Sharded`."""
        return place_of(self._checkpoint, self._names[name], start)

    def small_files(self) -> Mapping[str, Location]:
        """Config, tokenizer and license files that travel with the weights."""
        return self._checkpoint.small_files()

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied."""
        return self._checkpoint.other_weights()

    def close(self) -> None:
        """Close the checkpoint."""
        self._checkpoint.close()


def named_like(checkpoint: Checkpoint, reference: Mapping[str, TensorInfo]) -> Checkpoint:
    """A checkpoint under the names of another one.

    Args:
        checkpoint: the checkpoint; a tied head that it holds twice is there under both names if the other one has both.
        reference: tensors of the other one.

    Returns:
        The checkpoint itself where its names are right, or where no change of the front explains the difference.
    """
    lacking = {name: info for name, info in reference.items() if name not in checkpoint.tensors}
    if not lacking:
        return checkpoint
    surplus = [name for name in checkpoint.tensors if name not in reference]
    renamed = _renamed(checkpoint, lacking, surplus)
    # A change of names explains all of one side, or none.
    if len(renamed) < min(len(lacking), len(surplus)):
        renamed = {}
    taken = set(renamed.values())
    names = {name: name for name in checkpoint.tensors if name not in taken} | renamed
    ties = _aliases(checkpoint, (name for name in lacking if name not in renamed))
    if not renamed and not ties:
        return checkpoint
    remarks = remarks_on(checkpoint)
    if renamed:
        name, own = next(iter(renamed.items()))
        remarks += (f"{counted(len(renamed), 'tensor')} under another name: {shown(own)} is {shown(name)}",)
    return RenamedCheckpoint(checkpoint, names | ties, remarks)


def with_both_names(checkpoint: Checkpoint, reference: Iterable[str]) -> Checkpoint:
    """A checkpoint with a tied head under both of its names where another checkpoint has both; else itself."""
    names = {name: name for name in checkpoint.tensors}
    ties = _aliases(checkpoint, (name for name in reference if name not in names))
    return RenamedCheckpoint(checkpoint, names | ties, remarks_on(checkpoint)) if ties else checkpoint


def _aliases(checkpoint: Checkpoint, lacking: Iterable[str]) -> dict[str, str]:
    """Lacking names that a checkpoint knows as aliases, and the name of the tensor there."""
    aliases = aliases_of(checkpoint)
    return {name: aliases[name] for name in lacking if name in aliases}


def _renamed(checkpoint: Checkpoint, lacking: Mapping[str, TensorInfo], surplus: Iterable[str]) -> dict[str, str]:
    own = _unique((_plain(name), name) for name in surplus)
    expected = _unique((_plain(name), name) for name in lacking)
    pairs = {name: own[plain] for plain, name in expected.items() if plain in own}
    return {name: stored for name, stored in pairs.items() if lacking[name].shape == checkpoint.tensors[stored].shape}


def _plain(name: str) -> str:
    """A name without the parts that wrappers and model classes add."""
    parts = [part for part in name.split(".") if part not in WRAPPERS]
    while len(parts) > 1 and parts[0] in _MODEL_FRONT:
        parts = parts[1:]
    return ".".join(parts)


def _unique(items: Iterable[tuple[str, ValueT]]) -> dict[str, ValueT]:
    values: dict[str, ValueT] = {}
    repeated: set[str] = set()
    for key, value in items:
        repeated |= {key} & values.keys()
        values[key] = value
    return {key: value for key, value in values.items() if key not in repeated}
