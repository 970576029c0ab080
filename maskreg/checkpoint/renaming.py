"""Names: the tensors of a checkpoint under the names that another one has for them.

Training wrappers put parts into names, and model classes differ in what stands in front of them::

    model.layers.0.mlp.up_proj.weight                         as save_pretrained writes it
    _orig_mod.model.layers.0.mlp.up_proj.weight               torch.compile
    module.model.layers.0._orig_mod.mlp.up_proj.weight        DistributedDataParallel, layers compiled
    layers.0.mlp.up_proj.weight                               the inner model alone

Without these parts all four are ``layers.0.mlp.up_proj.weight``. Two tensors are the same when they have the same name
without them and the same shape, and no other has that name. Names of other tools (:data:`DIALECTS`) are explained.

``save_pretrained`` writes an output head that is tied to the embedding once. State dicts and the files of runs have it
under both names; there, the head is an alias of the embedding (:func:`tied`).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from maskreg.bucket import Location
from maskreg.checkpoint.ahead import ahead, blocks_ahead
from maskreg.checkpoint.base import Checkpoint, Memory
from maskreg.checkpoint.roles import FRONT, WRAPPERS, role_of
from maskreg.digest import LEAF_NUMEL
from maskreg.errors import FormatError
from maskreg.tensors.info import TensorInfo, shown
from maskreg.words import counted, listed

# Which of the tensors that a run saved are the model's weights, and what they are called.
#
# Runs save more than weights, in dictionaries within dictionaries::
#
#     {"model": {"layers.0.w": ..., "layers.1.w": ...},       the weights: the largest dictionary that is no optimizer's
#      "optimizer": {"state": {0: {"exp_avg": ...}}},         left out, and said
#      "step": 400}                                           left out: no tensor
#
# and training wrappers leave their marks in names, such as ``_orig_mod.layers.0.w``; these are removed.

_OPTIMIZER = ("optim", "scheduler", "rng", "dataloader", "train_state", "grad", "scaler")
_PREFERRED = ("model", "state_dict", "model_state_dict", "module", "network", "policy", "actor")
# A dictionary with fewer elements than this share of the largest holds counters and the like.
_SMALL = 1000

Path = tuple[str, ...]
"""Keys from the outermost dictionary to a value."""


class Choice(NamedTuple):
    """The tensors that are meant among all that was saved: their names by path, their dictionary's path, and notes."""

    names: Mapping[Path, str]
    prefix: Path
    notes: tuple[str, ...]

    def notes_with(self, others: Iterable[Path]) -> tuple[str, ...]:
        """The notes, with one on values that are no tensors and lie beside the chosen ones."""
        own = [shown(path[-1]) for path in others if self.prefix and path[:-1] == self.prefix]
        left_out = f"left out values of the state dict that are no tensors: {listed(own, 3)}"
        return (*self.notes, left_out) if own else self.notes


def weights_among(sizes: Mapping[Path, int], document: str) -> Choice:
    """Choose the weights among all tensors that were saved, by path with their number of elements."""
    totals: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    for path, size in sizes.items():
        totals[path[:-1]] = totals.get(path[:-1], 0) + size
        counts[path[:-1]] = counts.get(path[:-1], 0) + 1
    prefix = _chosen({path: total for path, total in totals.items() if not _is_optimizer(path)}, document)
    names, note = cleaned([path[-1] for path in sizes if path[:-1] == prefix])
    left_out: dict[str, int] = {}
    for path, count in counts.items():
        if path != prefix:
            # Tensors of an optimizer lie in a dictionary for each weight: its outermost name says enough.
            outer = path[len(prefix)] if path[: len(prefix)] == prefix and len(path) > len(prefix) else ".".join(path)
            label = path[0] if path and _is_optimizer(path[:1]) else outer
            left_out[label] = left_out.get(label, 0) + count
    notes = [note] if note else []
    if left_out:
        parts = [
            f"{shown(label)[1:-1] or 'beside it'} ({counted(count, 'tensor')})" for label, count in left_out.items()
        ]
        notes.append(f"{document}: left out, because it is not the model's state dict: {listed(parts, 3)}")
    return Choice({(*prefix, name): names[name] for name in names}, prefix, tuple(notes))


def cleaned(names: list[str]) -> tuple[Mapping[str, str], str]:
    """Names without what training wrappers add to them, by the names as stored; and a note on it.

    Names stay as they are where two would become the same.
    """
    clean = {name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in names}
    for front in FRONT:
        if clean and all(name.startswith(f"{front}.") for name in clean.values()):
            clean = {name: short.removeprefix(f"{front}.") for name, short in clean.items()}
    changed = [name for name in names if clean[name] != name]
    if not changed or len(set(clean.values())) < len(names) or not all(clean.values()):
        return {name: name for name in names}, ""
    first = changed[0]
    number = counted(len(changed), "name")
    return clean, f"{number} without the marks of training wrappers: {shown(first)} is {shown(clean[first])}"


def _chosen(totals: Mapping[Path, int], document: str) -> Path:
    if not totals:
        raise FormatError(
            f"{document}: no weights in it, only what an optimizer or another part of a run keeps",
            hint="name the file or folder that the model was saved to",
        )
    most = max(totals.values())
    large = [path for path, total in totals.items() if total * _SMALL >= most]
    if () in large:
        return ()
    if len(large) == 1:
        return large[0]
    for word in _PREFERRED:
        if len(fitting := [path for path in large if path[-1] == word]) == 1:
            return fitting[0]
    names = listed([".".join(path) for path in large], 4)
    raise FormatError(
        f"{document}: {len(large)} state dicts in it ({names}), and nothing says which one is meant",
        hint="save the model's alone: torch.save(model.state_dict(), PATH)",
    )


def _is_optimizer(path: Path) -> bool:
    return any(part.lower().startswith(_OPTIMIZER) for part in path)


def tied(checkpoint: Checkpoint, locations: Mapping[str, Sequence[Hashable]]) -> Mapping[str, str]:
    """Aliases of tensors: names of the same bytes in the same place, and output heads that equal an embedding."""
    owners: dict[tuple[Hashable, ...], str] = {}
    aliases: dict[str, str] = {}
    # The head is the alias, wherever it stands.
    for info in sorted(checkpoint.tensors.values(), key=lambda info: role_of(info.name) == "lm_head"):
        if info.numel:
            owner = owners.setdefault((info.dtype, info.shape, *locations[info.name]), info.name)
            if owner != info.name:
                aliases[info.name] = owner
    by_role: dict[str, list[TensorInfo]] = {"embedding": [], "lm_head": []}
    for info in checkpoint.tensors.values():
        by_role.get(role_of(info.name), []).append(info)
    for head in by_role["lm_head"]:
        for owner_info in by_role["embedding"]:
            same_form = (owner_info.dtype, owner_info.shape) == (head.dtype, head.shape)
            if head.name in aliases or not head.numel or not same_form:
                continue
            if same_values(checkpoint, owner_info.name, head.name):
                aliases[head.name] = owner_info.name
    return aliases


def same_values(checkpoint: Checkpoint, left: str, right: str) -> bool:
    """Whether two tensors of one size hold the same bits."""
    numel = checkpoint.tensors[left].numel

    def same(start: int, stop: int) -> bool:
        return np.array_equal(checkpoint.read(left, start, stop), checkpoint.read(right, start, stop))

    # Nearly always the first leaf decides, so nothing is read ahead before.
    if not same(0, min(LEAF_NUMEL, numel)):
        return False
    blocks = blocks_ahead(left, numel, checkpoint)
    return all(same(*span) for span in ahead(blocks, lambda span: (right, *span), checkpoint))


class Dialect(NamedTuple):
    """A tool's names, a mark of them, and the next step where a checkpoint, or a model in memory, has them."""

    names: str
    marks: re.Pattern[str]
    saved: str
    loaded: str


_AS_SAVED = "load the model with from_pretrained of transformers, patch that, and convert it afterwards"

DIALECTS = (
    Dialect(
        "fused projections, as vLLM has them",
        re.compile(r"(?:.+\.)?(?:qkv_proj|gate_up_proj)\.(?:weight|bias)"),
        "name the checkpoint that the engine loads, or save the model with save_pretrained of transformers",
        "pass a dictionary of views under the checkpoint's names, or write the indices and values that vLLM's "
        "CheckpointWeightPatch takes, which a conversion to sparse-safetensors gives",
    ),
    Dialect(
        "Megatron's names",
        re.compile(
            r"(?:.+\.)?decoder\.layers\.\d+\.(?:self_attention\.linear_(?:qkv|proj)|mlp\.linear_fc[12])\.(?:weight|bias)"
        ),
        "export it for transformers, for instance with Megatron Bridge, and name the folder of that",
        _AS_SAVED,
    ),
    Dialect(
        "torchtune's names",
        re.compile(r"(?:.+\.)?layers\.\d+\.(?:sa_norm|mlp_norm)\.scale"),
        "save it with torchtune's FullModelHFCheckpointer, and name the folder of that",
        _AS_SAVED,
    ),
    Dialect(
        "Meta's names",
        re.compile(r"layers\.\d+\.(?:attention\.w[qkvo]|feed_forward\.w[123])\.weight"),
        "convert it for transformers, and name the folder of that; of torchtune, save with FullModelHFCheckpointer",
        _AS_SAVED,
    ),
)
"""Names that are known, the first that fits."""


def dialect_of(names: Iterable[str], others: Iterable[str]) -> tuple[Dialect, str] | None:
    """The dialect of names that do not fit the others, and a name that gives it away; None where others have it too."""
    mine, theirs = list(names), list(others)
    for dialect in DIALECTS:
        sample = next(filter(dialect.marks.fullmatch, mine), None)
        if sample is not None and not any(map(dialect.marks.fullmatch, theirs)):
            return dialect, shown(sample)
    return None


_MODEL_FRONT = FRONT | {"model", "base_model"}
"""Parts at the front of a name that depend on what wraps the model, and on its class."""

ValueT = TypeVar("ValueT")


class RenamedCheckpoint(Checkpoint):
    """A checkpoint under other names."""

    def __init__(self, checkpoint: Checkpoint, names: Mapping[str, str], remarks: tuple[str, ...]) -> None:
        """Wrap an open checkpoint, which is closed with this one."""
        self.format, self.path, self.hub = checkpoint.format, checkpoint.path, checkpoint.hub
        self.blockwise, self.remarks = checkpoint.blockwise, remarks
        self._checkpoint, self._names = checkpoint, names
        stored = checkpoint.tensors
        self.tensors = {name: TensorInfo(name, stored[own].dtype, stored[own].shape) for name, own in names.items()}

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor."""
        return self._checkpoint.read(self._names[name], start, stop, into)

    def expect(self, name: str, start: int, stop: int) -> int:
        """Announce what is read soon."""
        return self._checkpoint.expect(self._names.get(name, ""), start, stop)

    def small_files(self) -> Mapping[str, Location]:
        """Files that travel with the weights."""
        return self._checkpoint.small_files()

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied."""
        return self._checkpoint.other_weights()

    def close(self) -> None:
        """Close the checkpoint."""
        self._checkpoint.close()


def named_like(checkpoint: Checkpoint, reference: Mapping[str, TensorInfo]) -> Checkpoint:
    """A checkpoint under the names of another one."""
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
    remarks = checkpoint.remarks
    if renamed:
        name, own = next(iter(renamed.items()))
        remarks += (f"{counted(len(renamed), 'tensor')} under another name: {shown(own)} is {shown(name)}",)
    return RenamedCheckpoint(checkpoint, names | ties, remarks)


def with_both_names(checkpoint: Checkpoint, reference: Iterable[str]) -> Checkpoint:
    """A checkpoint with a tied head under both of its names where another checkpoint has both; else itself."""
    names = {name: name for name in checkpoint.tensors}
    ties = _aliases(checkpoint, (name for name in reference if name not in names))
    return RenamedCheckpoint(checkpoint, names | ties, checkpoint.remarks) if ties else checkpoint


def _aliases(checkpoint: Checkpoint, lacking: Iterable[str]) -> dict[str, str]:
    """Lacking names that a checkpoint knows as aliases, and the name of the tensor there."""
    aliases = checkpoint.aliases
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
