"""Where commands look for the checkpoint that an artifact was made from, when nobody names one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from maskreg.digest import Digest
from maskreg.errors import ConfigError, MaskregError, NotFoundError, WrongCheckpointError

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Side
    from maskreg.catalog import Catalog
    from maskreg.checkpoint.base import Checkpoint

ResultT = TypeVar("ResultT")


def apply_to_first(
    side: Side, catalog: Catalog | None, run: Callable[[Checkpoint], ResultT], *, download: bool, again: str
) -> tuple[ResultT, Path]:
    """Run ``run`` on the first checkpoint that turns out to be ``side``.

    Looked at in turn: paths that this machine has seen with that identity, the hub cache at the recorded
    commit, and with ``download`` the hub. A path that is gone, or no longer holds that checkpoint, is skipped.

    Args:
        side: identity of the checkpoint that is wanted.
        catalog: index of the local registry; None when it is unusable.
        run: does the work; raises ``WrongCheckpointError`` before anything becomes visible.
        download: also fetch from the hub.
        again: the command line to suggest with a checkpoint added.

    Raises:
        NotFoundError: none of them is; says what was tried.
    """
    from maskreg.checkpoint import open_checkpoint

    tried = []
    hint = f"{again} --download" if side.hub and not download else f"{again} --source PATH"
    for place, from_hub in _candidates(side, catalog, download):
        if place != side.hub and (why := _out_of_reach(place)):
            tried.append(why)
            continue
        try:
            opened = open_checkpoint(place, download=from_hub)
        except MaskregError as error:
            tried.append(f"{place} ({error.message})")
            if isinstance(error, ConfigError):  # without the hub's library, --download would not help either
                hint = error.hint
            continue
        with closing(opened) as checkpoint:
            try:
                return run(checkpoint), checkpoint.path
            except WrongCheckpointError as error:
                tried.append(f"{place} ({error.message})")
    raise NotFoundError(
        f"the checkpoint that this applies to ({side.hub or Digest(side.root).short}) was not found; tried: "
        + ("; ".join(tried) or "nothing, for no place of it is known here"),
        hint=hint,
    )


def run_with_source(
    side: Side,
    catalog: Catalog | None,
    run: Callable[[Checkpoint | None], ResultT],
    *,
    source: str | None,
    download: bool,
    required: bool,
    again: str,
    note: Callable[[str], None],
) -> ResultT:
    """Run ``run`` on the checkpoint that was named, else on the first that turns out to be ``side``, else without one.

    Args:
        side: identity of the checkpoint that is wanted.
        catalog: index of the local registry; None when it is unusable.
        run: does the work, or the part of it that needs no checkpoint.
        source: the checkpoint that was named; None to look for one.
        download: also fetch from the hub; then it must be found.
        required: it must be found anyway.
        again: the command line to suggest with a checkpoint added.
        note: told why there is none.

    Raises:
        NotFoundError: it must be found and is nowhere.
    """
    if source is not None:
        from maskreg.checkpoint import open_checkpoint

        with closing(open_checkpoint(source, download=download)) as opened:
            return run(opened)
    try:
        return apply_to_first(side, catalog, run, download=download, again=again)[0]
    except NotFoundError as error:
        if download or required:
            raise
        note(error.message)
    return run(None)


def _candidates(side: Side, catalog: Catalog | None, download: bool) -> Iterator[tuple[str, bool]]:
    if catalog is not None:
        with suppress(MaskregError):
            yield from ((path, False) for path in catalog.seen_sources(side.root))
    if side.hub:
        yield side.hub, False
        if download:
            yield side.hub, True


def _out_of_reach(place: str) -> str:
    try:
        Path(place).stat()
    except (FileNotFoundError, NotADirectoryError):
        return f"gone: {place}"
    except OSError as error:
        return f"{place} ({error.strerror})"
    return ""
