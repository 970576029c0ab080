"""Links of one training step beside what others send for it: bytes, and CPU seconds of both sides.

All start from the weights of the step before in memory and end with the new ones in memory. slime's form is the XOR of
the stored bytes, each tensor compressed with zstd at level 1; vLLM's is an int32 index and a bf16 value for each
coordinate that changed. maskreg's row is the whole way: publishing checks, hashes, stores durably, names and pushes a
link to a folder; following asks for the tag, transfers, verifies and patches every leaf. Its coding alone is a row of
its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numcodecs.zstd import compress, decompress

import maskreg
from maskreg.artifact.manifest import dump_manifest
from maskreg.codec import DEFAULT_CODEC, get_codec, grid_at
from maskreg.tensors.blocks import blocks_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Codes = npt.NDArray[np.uint16]
    State = Mapping[str, Codes]

T = TypeVar("T")

RUN = "bench/run"


@dataclass(frozen=True)
class Row:
    """One way to send a step.

    Attributes:
        pair: the two states.
        name: of the way.
        bytes: sent.
        publish_cpu_seconds, follow_cpu_seconds: of each side, with one thread; the best of some.
    """

    pair: str
    name: str
    bytes: int
    publish_cpu_seconds: float
    follow_cpu_seconds: float


def bench(before: Path, after: Path, repeat: int) -> list[Row]:
    """Measure every way on one pair of checkpoints with the same tensors in bf16."""
    states = [_loaded(path) for path in (before, after)]
    name = f"{before.name} to {after.name}"
    coded = (("XOR, zstd-1 (slime)", _xor, _unxor), ("int32 index, bf16 value (vLLM)", _sparse, _unsparse),
             ("coding alone (maskreg)", _coded, _decoded))  # fmt: skip
    rows = [_link(name, before, after, repeat)]
    for way, encode, decode in coded:
        data, publish_s = _best(lambda encode=encode: encode(*states), repeat)  # type: ignore[misc]
        result, follow_s = _best(lambda decode=decode, data=data: decode(states[0], data), repeat)  # type: ignore[misc]
        assert all(np.array_equal(result[tensor], states[1][tensor]) for tensor in states[1]), way
        size = sum(len(part) for parts in data.values() for part in parts)
        rows.append(Row(name, way, size, publish_s, follow_s))
    return rows


def table(rows: list[Row]) -> str:
    """The rows as text, with the bytes of each beside the link's."""
    lines = [
        f"{'pair':<18}  {'what is sent':<32}{'bytes':>12}{'link / this':>13}{'publish CPU s':>15}{'follow CPU s':>14}"
    ]
    link = {row.pair: row.bytes for row in rows if row.name == "link (maskreg)"}
    lines += [
        f"{row.pair:<18}  {row.name:<32}{row.bytes:>12,}{link[row.pair] / row.bytes:>13.3f}"
        f"{row.publish_cpu_seconds:>15.3f}{row.follow_cpu_seconds:>14.3f}"
        for row in rows
    ]
    return "\n".join(lines)


def _link(name: str, before: Path, after: Path, repeat: int) -> Row:
    import torch

    publish, follow, sizes = [], [], []
    # The first time imports everything.
    for _ in range(repeat + 1):
        with tempfile.TemporaryDirectory(prefix="maskreg-bench-") as folder, _people(Path(folder)) as (ada, bob):
            model = {tensor: torch.from_numpy(codes.view(np.int16)) for tensor, codes in _loaded(before).items()}
            target = {tensor: torch.from_numpy(codes.view(np.int16)) for tensor, codes in _loaded(after).items()}
            model, target = ({t: m.view(torch.bfloat16) for t, m in state.items()} for state in (model, target))
            with maskreg.Publisher(RUN, source=before, remote="team", jobs=1, workspace=ada) as publisher:
                publisher.prepare()
                published, seconds = _timed(lambda: publisher.publish(target))  # noqa: B023
                publish.append(seconds)
            with maskreg.follow(model, RUN, every_s=0, jobs=1, workspace=bob) as follower:
                followed, seconds = _timed(follower.step)
                follow.append(seconds)
            assert followed is not None
            assert published.pushed is not None
            assert all(torch.equal(model[t].view(torch.int16), target[t].view(torch.int16)) for t in target)
            sizes.append(published.pushed.sent_bytes + len(dump_manifest(published.manifest)))
    return Row(name, "link (maskreg)", max(sizes), min(publish[1:]), min(follow[1:]))


@contextmanager
def _people(folder: Path) -> Iterator[list[maskreg.Workspace]]:
    """Workspaces of one who publishes and one who follows, with a folder for a remote."""
    with ExitStack() as stack:
        spaces = []
        for name in ("ada", "bob"):
            settings = maskreg.Settings(home=folder / name / "home", config_path=folder / name / "config.toml")
            spaces.append(stack.enter_context(maskreg.Workspace(settings)))
            maskreg.remotes.add("team", folder / "team", workspace=spaces[-1])
        yield spaces


def _loaded(path: Path) -> dict[str, Codes]:
    with closing(maskreg.open_checkpoint(path)) as checkpoint:
        return {
            name: np.array(checkpoint.read(name, 0, info.numel)).view(np.uint16).reshape(info.shape)
            for name, info in checkpoint.tensors.items()
        }


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def _best(work: Callable[[], T], repeat: int) -> tuple[T, float]:
    runs = [_timed(work) for _ in range(repeat)]
    return runs[-1][0], min(seconds for _, seconds in runs)


def _xor(before: State, after: State) -> dict[str, list[bytes]]:
    changes = {name: (before[name] ^ codes).tobytes() for name, codes in after.items()}
    return {name: [bytes(compress(change, 1)) if change else b""] for name, change in changes.items()}


def _unxor(before: State, data: Mapping[str, list[bytes]]) -> State:
    result = {}
    for name, parts in data.items():
        change = decompress(parts[0]) if parts[0] else b""
        result[name] = before[name] ^ np.frombuffer(change, np.uint16).reshape(before[name].shape)
    return result


def _sparse(before: State, after: State) -> dict[str, list[bytes]]:
    result = {}
    for name, codes in after.items():
        changed = np.flatnonzero(before[name] != codes).astype(np.int32)
        result[name] = [changed.tobytes(), codes.reshape(-1)[changed].tobytes()]
    return result


def _unsparse(before: State, data: Mapping[str, list[bytes]]) -> State:
    result = {}
    for name, (changed, values) in data.items():
        result[name] = before[name].copy()
        result[name].reshape(-1)[np.frombuffer(changed, np.int32)] = np.frombuffer(values, np.uint16)
    return result


def _coded(before: State, after: State) -> dict[str, list[bytes]]:
    codec, result = get_codec(DEFAULT_CODEC), {}
    for name, codes in after.items():
        source, target = before[name].reshape(-1), codes.reshape(-1)
        spans = blocks_of(codes.size)
        result[name] = [codec.encode(source[a:b], target[a:b], grid_at(codes.shape, a)) for a, b in spans]
    return result


def _decoded(before: State, data: Mapping[str, list[bytes]]) -> dict[str, Any]:
    codec, result = get_codec(DEFAULT_CODEC), {}
    for name, blocks in data.items():
        source = before[name].reshape(-1)
        values = np.empty_like(source)
        for (start, stop), block in zip(blocks_of(values.size), blocks, strict=True):
            codec.decode(source[start:stop], memoryview(block), values[start:stop])
        result[name] = values.reshape(before[name].shape)
    return result
