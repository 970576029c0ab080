"""Baseline: make a mask to compare another mask with, or to retrain in its place, and give it a name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from maskreg.errors import UsageError
from maskreg.extras import requiring
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref
from maskreg.workspace.sources import SourceOptions, sources
from maskreg.workspace.storing import Naming, Stored
from maskreg.workspace.workspace import ArtifactLike, Named, Workspace, as_name, opened, split_options

if TYPE_CHECKING:
    from maskreg.mask.baseline import BaselineSpec


class BaselineOptions(SourceOptions, total=False):
    """Parameters of a baseline, and the source, which kinds from exponent-matched to safe look at.

    Attributes:
        seed: seed of the draw; 0 by default where the kind is random.
        density: for ``subset``: share of all coordinates to keep.
        rank: for ``principal`` and ``safe``: by default a tenth of a matrix's shorter side.
        alpha: for ``safe``: share of each matrix that is principal, and that is small; 0.5 by default.
    """

    seed: int | None
    density: float | None
    rank: int | None
    alpha: float | None


def baseline(
    artifact: ArtifactLike,
    kind: str | BaselineSpec,
    name: str | Ref | None = None,
    *,
    force: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Unpack[BaselineOptions],
) -> Stored:
    """Make a baseline of a mask and store it in the local registry.

    Args:
        kind: such as ``random-global`` or ``exponent-matched``, or a complete specification.
        name: what to call it; by default the mask's name, the kind, then the parameters and ``-s<seed>``.

    Raises:
        UsageError: an unknown kind, or parameters that the kind does not take.
    """
    from maskreg.flow.baseline.build import make_baseline
    from maskreg.mask.baseline import BaselineSpec

    find, parameters = split_options(options, SourceOptions, BaselineOptions)
    if isinstance(kind, BaselineSpec):
        spec = kind
        if any(value is not None for value in parameters.values()):
            raise UsageError("a complete specification takes no more parameters", hint="pass the kind as text")
    else:
        spec = BaselineSpec.of(kind, **parameters)
    if "rank" in spec.kind.options:
        with requiring(f"a {spec.kind.name} baseline"):
            import torch  # noqa: F401 (now, and not after the source was read)
    with opened(workspace) as space:
        named = space.find(artifact)
        naming = Naming(space, _name(named, spec) if name is None else as_name(name), careful=not force)
        side, derived = named.artifact.manifest.source, Card(named.card.family, spec.kind.name).checked()
        if spec.kind.source:
            for attempt in sources(space, side, **find):
                with attempt as checkpoint:
                    result = make_baseline(named.artifact, spec, space.root, checkpoint, progress=progress)
        else:
            if find.get("source") is not None:
                space.note(f"the source was not used: {spec.kind.name} does not look at weights")
            result = make_baseline(named.artifact, spec, space.root, None, progress=progress)
        return naming.store(result.digest, Card(), result.notes, derived=derived)


def _name(named: Named, spec: BaselineSpec) -> Ref | None:
    if named.ref is None:
        return None
    given = {"d": spec.density, "r": spec.rank, "a": spec.alpha, "s": spec.seed}
    ending = "".join(f"-{letter}{value}" for letter, value in given.items() if value is not None)
    base = replace(named.ref, digest=None)
    return Ref.parse(f"{base.project}/{base.name}-{spec.kind.name}{ending}:{base.tag}")
