"""What was published last: the bits that the next link is coded against, of the blocks that a process works on.

A process holds whole the blocks that it owns, and of blocks that another process owns its own coordinates::

    [6, 4] over 2 processes, Shard(0), in blocks of 16      process 0 owns the first, process 1 the second
    aaaaaaaaaaaabbbb  bbbbbbbb                              0 holds the first whole, 1 holds 4 of it and the second
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import finalize

import numpy as np

from maskreg.bucket import Location
from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint, Memory
from maskreg.checkpoint.files import same_content
from maskreg.codec.base import Movers
from maskreg.codec.movers import NONE
from maskreg.digest import LeafHashes, fingerprint, fingerprint_root, leaf_hashes
from maskreg.disk import filling, make_folder, make_root, require_space
from maskreg.flow.extract.differ import nans_and_infinities
from maskreg.flow.hashing import hashes_after
from maskreg.flow.publish.division import Block
from maskreg.flow.publish.moved import Kept, write
from maskreg.flow.storing import from_blocks
from maskreg.parallel import ordered
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.info import BLOCK_NUMEL, TensorInfo

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.live.alone import Alone
    from maskreg.live.processes import Processes

    Bits = npt.NDArray[Any]

Key = tuple[str, int]
"""A block: its tensor, and where it begins."""

_WEIGHTS = "weights"
_FILES = "files"


class Facts(NamedTuple):
    """What follows from the bits of a block: hashes of its leaves; its NaN and infinite codes, if it is of bf16."""

    leaves: LeafHashes
    nan: int
    inf: int

    def after(self, before: Bits, movers: Movers) -> tuple[Facts, Bits]:
        """The same of the block, uint16 ``[n]``, with the movers' codes in it; and which codes these replace."""
        leaves, replaced = hashes_after(before, movers, self.leaves)
        (nan, inf), (new_nan, new_inf) = (nans_and_infinities(each) for each in (replaced, movers.codes))
        return Facts(leaves, self.nan - nan + new_nan, self.inf - inf + new_inf), replaced


class Baseline(Checkpoint):
    """The bits of a checkpoint that a process holds, in memory or in a file that is mapped into it.

    Only blocks that it owns are read as a checkpoint is.

    Attributes:
        blocks: all blocks, by the process that owns them.
        held: blocks that this process owns, or publishes with others and holds coordinates of.
    """

    # Else each leaf would be copied out of memory before it is hashed.
    blockwise = True

    def __init__(
        self,
        checkpoint: Checkpoint,
        blocks: Sequence[Block],
        rank: int,
        *,
        folder: Path,
        on_disk: bool = False,
        jobs: int = 1,
    ) -> None:
        """Read what this process needs of a checkpoint.

        ``folder``: made in a registry for small files, and with ``on_disk`` for the bits; removed at the end.
        """
        self.format, self.path, self.hub = checkpoint.format, checkpoint.path, checkpoint.hub
        self.tensors: Mapping[str, TensorInfo] = dict(checkpoint.tensors)
        self.blocks, self._rank, self._jobs = blocks, rank, jobs
        self._other_weights = checkpoint.other_weights()
        self._folder = folder
        self._remove_folder = finalize(self, shutil.rmtree, folder, ignore_errors=True)
        make_root(folder.parents[1])
        make_folder(folder / _FILES)
        self.held = [block for block in blocks if rank in block.taken]
        own = [block if block.owner == rank else block.taken[rank] for block in self.held]
        sizes = [taken.stop - taken.start for taken in own]
        # Each begins at a multiple of 8 bytes.
        ends = np.cumsum(
            [-(-n * self._dtype(block).itemsize // 8) * 8 for block, n in zip(self.held, sizes, strict=True)]
        )
        total = int(ends[-1]) if sizes else 0
        memory = self._mapped(max(1, total)) if on_disk else np.empty(total, np.uint8)
        parts = zip(self.held, sizes, np.split(memory, ends), strict=False)
        self._bits = {block.key: part.view(self._dtype(block))[:n] for block, n, part in parts}
        self._facts: dict[Key, Facts] = {}
        self.take(checkpoint)

    @property
    def owned(self) -> list[Block]:
        """The blocks that this process owns."""
        return [block for block in self.held if block.owner == self._rank]

    def take(self, checkpoint: Checkpoint) -> None:
        """Take over bits and small files of a checkpoint with the same tensors."""

        def copy(block: Block) -> None:
            values = self.cast(block.name, checkpoint.read(block.name, block.start, block.stop), checkpoint)
            self._bits[block.key][:] = values if block.owner == self._rank else self._part(block, values)

        tasks = ahead(self.held, lambda block: (block.name, block.start, block.stop), checkpoint)
        for _ in ordered(copy, tasks, jobs=self._jobs, size=lambda block: block.stop - block.start):
            pass
        self._facts.clear()
        self.take_files(checkpoint)

    def take_files(self, checkpoint: Checkpoint) -> None:
        """Take over small files of a checkpoint."""
        # Copies, since runs delete their checkpoints.
        files, held = checkpoint.small_files(), self.small_files()
        for name in held.keys() - files.keys():
            (self._folder / _FILES / name).unlink()
        for name, path in files.items():
            if name not in held or (path != held[name] and not same_content(path, held[name])):
                (self._folder / _FILES / name).write_bytes(path.read_bytes())

    def cast(self, name: str, values: Bits, checkpoint: Checkpoint) -> Bits:
        """Values of a tensor of another checkpoint in this one's dtype: wider ones are cast to bf16."""
        dtype = checkpoint.tensors[name].dtype
        return values if dtype == self.tensors[name].dtype else to_bf16(values, dtype)

    def own(self, block: Block) -> Bits:
        """This process's coordinates of a block, in their order."""
        bits = self._bits[block.key]
        return self._part(block, bits) if block.owner == self._rank else bits

    def facts(self, key: Key) -> Facts:
        """What follows from the bits of a block that this process owns; computed once."""
        if key not in self._facts:
            bits = self._bits[key]
            is_bf16 = self.tensors[key[0]].dtype == "BF16"
            self._facts[key] = Facts(leaf_hashes(bits), *(nans_and_infinities(bits) if is_bf16 else (0, 0)))
        return self._facts[key]

    def advance(self, moved: Mapping[Key, Kept], facts: Mapping[Key, Facts]) -> None:
        """Write what moved, by block: positions in owned blocks, and in others among this process's coordinates.

        ``facts``: of owned blocks, as they are afterwards, as far as they are known.
        """
        for key, kept in moved.items():
            write(self._bits[key], kept)
            self._facts.pop(key, None)
        self._facts.update(facts)

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> Bits:
        """Elements of blocks that this process owns; a view where they lie in one block."""
        first = start // BLOCK_NUMEL * BLOCK_NUMEL
        if start < stop <= first + BLOCK_NUMEL:
            return self._bits[name, first][start - first : stop - first]
        return from_blocks(self.tensors[name], start, stop, into, lambda number: self._bits[name, number * BLOCK_NUMEL])

    def small_files(self) -> Mapping[str, Location]:
        """Small files of the checkpoint that was taken last, as they were."""
        return {path.name: path for path in (self._folder / _FILES).iterdir()}

    def other_weights(self) -> tuple[str, ...]:
        """What lay beside the checkpoint that was read first."""
        return self._other_weights

    def close(self) -> None:
        """Free the bits, and remove the folder."""
        self._bits.clear()
        self._remove_folder()

    def root(self, processes: Processes | Alone) -> str:
        """The identity of the checkpoint; every process must call it."""

        def hashed(block: Block) -> tuple[Key, LeafHashes]:
            return block.key, self.facts(block.key).leaves

        own = dict(ordered(hashed, self.owned, jobs=self._jobs, size=lambda block: block.stop - block.start))
        leaves = {key: each for part in processes.gathered(own) for key, each in part.items()}
        of = {name: [leaf_hashes(np.empty(0, np.uint8))] for name in self.tensors}
        for block in self.blocks:
            of[block.name].append(leaves[block.key])
        return fingerprint_root(
            (name, info.dtype, info.shape, fingerprint(np.concatenate(of[name]))) for name, info in self.tensors.items()
        )

    def _part(self, block: Block, values: Bits) -> Bits:
        """This process's coordinates among all of a block."""
        taken = block.taken[self._rank]
        if taken.stop - taken.start == values.size:
            return values
        return block.runs[self._rank].of_block(values, taken, block.start)

    def _dtype(self, block: Block) -> np.dtype[Any]:
        return np.dtype(f"<u{self.tensors[block.name].item_bytes}")

    def _mapped(self, total: int) -> Bits:
        path, what, registry = self._folder / _WEIGHTS, "the baseline", str(self._folder.parents[1])
        require_space(path, total, what=what, registry=registry)
        with filling(path, total, what=what, registry=registry), path.open("wb") as file:
            # A sparse file would end the process where the disk becomes full.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, total)
            else:
                file.truncate(total)
        return np.memmap(path, np.uint8, "r+")


class Changed(Checkpoint):
    """A baseline with what moved over it; reads blocks that this process owns."""

    blockwise = True

    def __init__(self, baseline: Baseline, moved: Mapping[Key, Kept]) -> None:
        """``moved``: by block."""
        self.format, self.path = baseline.format, baseline.path
        self.tensors = baseline.tensors
        self._baseline, self._moved = baseline, moved

    def movers(self, key: Key) -> Movers:
        """What moved of a block of 16-bit codes."""
        kept = self._moved.get(key)
        return NONE if kept is None else Movers(*kept.moved)

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> Bits:
        """Elements of a block from its beginning on."""
        values = self._baseline.read(name, start, stop)
        if (kept := self._moved.get((name, start))) is None:
            return values
        result: Bits = np.empty_like(values) if into is None else into[: values.nbytes].view(values.dtype)
        result[:] = values
        write(result, kept)
        return result

    def close(self) -> None:
        """Nothing: the baseline belongs to its owner."""
