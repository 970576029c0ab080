"""What becomes of every tensor in a merge: merged, taken whole from one artifact, left as it is, or removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from maskreg.artifact.scope import Group, groups_of
from maskreg.errors import PairMismatchError
from maskreg.tensors.dtypes import FLOAT
from maskreg.tensors.info import TensorInfo
from maskreg.update.delta import Change, Delta, TensorDelta

SOURCE = -1
"""In place of an artifact's index: the tensor is as in the source."""


class Fate(NamedTuple):
    """What becomes of a tensor.

    Attributes:
        group: its names and its row in each artifact.
        info: its form in the result; None when it is removed.
        merged: values of all artifacts are merged.
        owner: otherwise, the artifact that it is taken from, or :data:`SOURCE`.
    """

    group: Group
    info: TensorInfo | None
    merged: bool
    owner: int = SOURCE

    @property
    def name(self) -> str:
        """The first name."""
        return self.group.names[0]


def fates_of(deltas: Sequence[Delta]) -> list[Fate]:
    """Decide for every tensor, in the order of the source, then for those that artifacts add.

    Values are merged where all artifacts keep the form and it is one of numbers. Any other tensor may be changed by one
    artifact, or by several in the same way.

    Raises:
        PairMismatchError: artifacts do different things to a tensor that cannot be merged.
    """
    fates = []
    for group in groups_of([delta.artifact for delta in deltas]):
        tensors = [delta[group.names[0]] for delta in deltas]
        form = tensors[0].before
        if all(tensor.change is Change.KEEP for tensor in tensors):
            fates.append(Fate(group, form, merged=False))
        elif form is not None and form.dtype in FLOAT and form.numel and all(t.after == form for t in tensors):
            fates.append(Fate(group, form, merged=True))
        else:
            fates.append(_taken(group, tensors, deltas))
    return [*fates, *_added(deltas)]


def _added(deltas: Sequence[Delta]) -> Iterator[Fate]:
    names = dict.fromkeys(name for delta in deltas for name, t in delta.items() if t.before is None)
    for name in names:
        having = [delta for delta in deltas if name in delta]
        group = Group((name,), tuple(delta[name].row for delta in having))
        fate = _taken(group, [delta[name] for delta in having], having)
        yield fate._replace(owner=deltas.index(having[fate.owner]))


def _taken(group: Group, tensors: Sequence[TensorDelta], deltas: Sequence[Delta]) -> Fate:
    changing = [index for index, tensor in enumerate(tensors) if tensor.change is not Change.KEEP]
    first = changing[0]
    for index in changing[1:]:
        if _outcome(tensors[index]) != _outcome(tensors[first]):
            names = [deltas[n].artifact.digest.short for n in (first, index)]
            raise PairMismatchError(
                f"{group.names[0]}: {names[0]} makes it {_form(tensors[first])}, {names[1]} makes it "
                f"{_form(tensors[index])}; only numbers of one form can be merged",
                (group.names[0],),
                hint="merge artifacts of which only one changes that tensor's form",
            )
    return Fate(group, tensors[first].after, merged=False, owner=first)


def _outcome(tensor: TensorDelta) -> tuple[TensorInfo | None, str]:
    return tensor.after, tensor.row.target_fingerprint


def _form(tensor: TensorDelta) -> str:
    after = tensor.after
    return "absent" if after is None else f"{after.dtype} {list(after.shape)} of other values"
