"""What a change moves, worked out by one process of a machine and read by the others.

::

    FOLDER/<64 digits of the links>.moved   digest of a table, its length, the table, then the movers of all blocks:
                                            places uint32, codes before uint16, codes after uint16
    FOLDER/lock                             held by the process that works one out; the others wait, and read its file

Only :mod:`maskreg.flow.apply.moving` says whether a block that was read fits; where none does, a process decodes.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from maskreg.digest import Digest
from maskreg.disk import make_folder, replacing
from maskreg.document import canonical, parse
from maskreg.update.route import Route

_KEPT = 2
_KINDS = torch.int32, torch.int16, torch.int16


class Swaps(NamedTuple):
    """Elements that change, all on one device.

    Attributes:
        at: int32 ``[k]``, their places, ascending; int64 in memory that is not contiguous.
        before: integers of the elements' width, ``[k]``: what they are.
        after: what they become.
    """

    at: torch.Tensor
    before: torch.Tensor
    after: torch.Tensor


Moved = dict[tuple[str, int], Swaps]
"""What changes of coded blocks, by tensor and first element."""


@contextmanager
def sharing(folder: Path | None, route: Route, jobs: int) -> Iterator[Moved]:
    """What another process has worked out; else nothing, and what is put into it is for others, which wait meanwhile.

    All objects of the links are hashed before the work of another process is used. ``folder``: None shares nothing.

    Raises:
        CorruptError: a link is damaged.
    """
    if folder is None:
        yield {}
        return
    make_folder(folder)
    links = [[str(delta.artifact.digest), delta.revert] for delta in route.deltas]
    path = folder / f"{Digest.of(canonical(links)).hex}.moved"
    with ExitStack() as held:
        fcntl.flock(held.enter_context((folder / "lock").open("ab")), fcntl.LOCK_EX)
        moved = _read(path) if path.exists() and path.stat().st_size else {}
        if moved:
            held.close()
            for delta in route.deltas:
                delta.artifact.verify_rest(jobs=jobs)
            yield moved
            return
        yield moved
        _write(path, moved)
        for old in sorted(folder.glob("*.moved"), key=lambda each: each.stat().st_mtime_ns)[:-_KEPT]:
            old.unlink()


def _write(path: Path, moved: Moved) -> None:
    table = canonical([[name, start, swaps.at.numel()] for (name, start), swaps in moved.items()])
    table += b" " * (-len(table) % 4)
    with replacing(path, sync=False) as file:
        file.write(Digest.of(table).encode() + b"\n" + len(table).to_bytes(8, "little") + table)
        for side in zip(*moved.values(), strict=True):
            for part in side:
                file.write(part.numpy().data)


def _read(path: Path) -> Moved:
    """Mapped, so that processes share the memory; nothing where it is damaged."""
    data = np.memmap(path, np.uint8, "c")
    digest, length, table = data[:71].tobytes(), int.from_bytes(data[72:80].tobytes(), "little"), data[80:]
    text = table[:length].tobytes()
    if Digest.of(text).encode() != digest:
        return {}
    blocks = parse(text, path.name, max_bytes=length, max_values=length)
    counts = [count for *_, count in blocks]
    total = sum(counts)
    if table.size != length + 8 * total:
        return {}
    movers = torch.split(torch.from_numpy(np.asarray(table[length:])), [4 * total, 2 * total, 2 * total])
    sides = (torch.split(side.view(kind), counts) for side, kind in zip(movers, _KINDS, strict=True))
    return {(name, start): Swaps(*each) for (name, start, _), *each in zip(blocks, *sides, strict=True)}
