"""What several links make of a checkpoint, read like one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.errors import PairMismatchError, UsageError, WrongCheckpointError
from maskreg.flow.chain import Chained, root_of, write_weights
from maskreg.flow.publish.baseline import Baseline
from maskreg.flow.publish.division import undivided
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.flow.making import BLOCK, LEAF, edge_pair, extracted, opened, stored


@pytest.fixture
def three(tmp_path: Path) -> list[Checkpoint]:
    """A checkpoint of every awkward tensor and one that is longer than a block, and what two steps made of it."""
    first, second = edge_pair()
    long = bf16((BLOCK + 5 * LEAF // 2,), 5)
    third: dict[str, Tensor] = {name: moved(tensor, 0.2, 3) for name, tensor in second.items()}
    states = [{**first, "long": long}, {**second, "long": moved(long, 0.01)}, {**third, "long": moved(long, 0.3)}]
    return [
        open_checkpoint(make_checkpoint(tmp_path / str(n), tensors, shards=2, files={"note.txt": b"%d" % n}))
        for n, tensors in enumerate(states)
    ]


@pytest.fixture
def links(tmp_path: Path, three: list[Checkpoint]) -> list[Artifact]:
    return [extracted(tmp_path / "home", *pair, reversible=True) for pair in (three[:2], three[1:])]


def test_it_reads_as_the_last_target_does(three: list[Checkpoint], links: list[Artifact]) -> None:
    chained = Chained(three[0], [(link, False) for link in links])
    assert dict(chained.tensors) == dict(three[2].tensors)
    assert root_of(chained) == links[1].manifest.target.root
    for start, stop in ((0, 7), (BLOCK - 3, BLOCK + 3), (BLOCK + 1, BLOCK + 5 * LEAF // 2), (9, 9)):
        into = np.empty(2 * (stop - start), np.uint8)
        assert np.array_equal(chained.read("long", start, stop, into), three[2].read("long", start, stop))
    with pytest.raises(ValueError, match="scalar"):
        chained.read("scalar", 0, 2)


def test_it_goes_back_where_links_are_reversible(three: list[Checkpoint], links: list[Artifact]) -> None:
    back = Chained(three[2], [(link, True) for link in reversed(links)])
    assert root_of(back) == links[0].manifest.source.root
    assert root_of(Chained(three[1], [(links[0], True), (links[0], False)])) == links[0].manifest.target.root


def test_written_it_equals_the_last_target_file_by_file(
    three: list[Checkpoint], links: list[Artifact], tmp_path: Path
) -> None:
    write_weights(Chained(three[0], [(link, False) for link in links]), three[0], tmp_path / "out")
    assert stored(tmp_path / "out") == stored(Path(str(three[2].path)))
    for path in three[2].path.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def test_another_checkpoint_and_another_order_are_refused(three: list[Checkpoint], links: list[Artifact]) -> None:
    with pytest.raises(WrongCheckpointError):
        Chained(three[1], [(link, False) for link in links])
    with pytest.raises(PairMismatchError, match=links[0].digest.short):
        Chained(three[1], [(links[1], False), (links[0], False)])


def test_a_leaf_that_is_wrong_in_the_middle_shows_when_it_is_read(
    three: list[Checkpoint], links: list[Artifact], tmp_path: Path
) -> None:
    wrong = Baseline(three[0], undivided(three[0].tensors), 0, folder=tmp_path / "home" / "staging" / "work")
    wrong.read("long", LEAF, LEAF + 1)[0] ^= 1
    chained = Chained(wrong, [(link, False) for link in links])
    with pytest.raises(WrongCheckpointError, match="long"):
        chained.read("long", 0, 1)


def test_a_link_that_reshapes_is_refused(three: list[Checkpoint], tmp_path: Path) -> None:
    first, second = edge_pair()
    pair = opened(tmp_path, first, {**second, "scalar": bf16((2,), 1)})
    link = extracted(tmp_path / "home", *pair, allow_mismatch=True)
    with pytest.raises(UsageError, match="scalar"):
        Chained(pair[0], [(link, False)])
