from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.codec import CODECS, get_codec
from maskreg.digest import leaf_hashes
from maskreg.errors import CorruptError, PartAbsentError
from maskreg.parallel import Buffers
from maskreg.update.delta import Change, Delta, Payload, SpanDelta
from tests.checkpoints import Tensor, bf16, f32, moved
from tests.flow.making import LEAF, edge_pair, extracted, opened

Codes = np.ndarray[tuple[int], np.dtype[np.uint16]]


def codes(numel: int, seed: int) -> Codes:
    return np.random.default_rng(seed).integers(0, 1 << 16, numel).astype(np.uint16)


def every_change(tmp_path: Path) -> Artifact:
    large = bf16((LEAF + 9, 3), 1)
    source: dict[str, Tensor] = {"kept": bf16((7,), 2), "moved": large, "wide": f32((4,), 1), "gone": bf16((5,), 4)}
    target = {"kept": source["kept"], "moved": moved(large, 0.1), "wide": f32((4,), 2), "new": bf16((3, 2), 5)}
    return extracted(tmp_path / "root", *opened(tmp_path, source, target), allow_mismatch=True, reversible=True)


class TestDelta:
    """By tensor name, in the order of the table, in either direction."""

    @pytest.mark.parametrize("revert", [False, True])
    def test_what_becomes_of_each_tensor(self, revert: bool, tmp_path: Path) -> None:
        artifact = every_change(tmp_path)
        delta = Delta(artifact, revert=revert)
        added, removed = ("gone", "new") if revert else ("new", "gone")
        assert list(delta) == list(artifact.by_name)
        assert len(delta) == 5
        assert {name: tensor.change for name, tensor in delta.items()} == {
            "kept": Change.KEEP,
            "moved": Change.DECODE,
            "wide": Change.REPLACE,
            added: Change.ADD,
            removed: Change.REMOVE,
        }
        assert delta[added].before is None
        assert delta[removed].after is None
        assert [*delta[removed].spans()] == []

    def test_tied_names_share_a_row(self, tmp_path: Path) -> None:
        names = ("model.embed_tokens.weight", "lm_head.weight")
        before = bf16((30, 8), 1)
        after = moved(before, 0.5)
        pair = opened(tmp_path, dict.fromkeys(names, before), dict.fromkeys(names, after))
        delta = Delta(extracted(tmp_path / "root", *pair))
        assert set(delta) == set(names)
        first, second = (delta[name] for name in names)
        assert first.row is second.row
        assert (first.name, second.name) == names

    @pytest.mark.parametrize("revert", [False, True])
    def test_spans_give_the_result_of_every_element(self, revert: bool, tmp_path: Path) -> None:
        source, target = edge_pair()
        artifact = extracted(tmp_path / "root", *opened(tmp_path, source, target), reversible=True)
        before, after = (target, source) if revert else (source, target)
        delta = Delta(artifact, revert=revert)
        for name, tensor in delta.items():
            at_hand = before[name][1].reshape(-1)
            spans = [*tensor.spans()]
            results = [span.result(at_hand[span.start : span.stop], delta.codec.decode, Buffers()) for span in spans]
            assert np.array_equal(np.concatenate([at_hand[:0], *results]), after[name][1].reshape(-1))

    def test_a_mask_has_no_values(self, tmp_path: Path) -> None:
        artifact = extracted(tmp_path / "root", *opened(tmp_path, *edge_pair()), mask_only=True)
        with pytest.raises(PartAbsentError):
            Delta(artifact)


def reading(data: bytes) -> Payload:
    return lambda buffers: np.frombuffer(data, np.uint8)


class TestSpanDelta:
    """One span: decoded, stored or kept, and checked after."""

    @pytest.mark.parametrize("name", sorted(CODECS))
    def test_a_coded_span(self, name: str) -> None:
        codec = get_codec(name)
        context, values = codes(1000, 3), codes(1000, 4)
        span = SpanDelta("w", 0, 1000, leaf_hashes(values), 2, coded=reading(codec.encode(context, values)))
        assert np.array_equal(span.result(context, codec.decode, Buffers()), values)

    def test_a_coded_span_that_decodes_to_something_else(self) -> None:
        span = SpanDelta("w", 1 << 22, (1 << 22) + 10, leaf_hashes(codes(10, 1)), 2, coded=reading(b"x"))
        with pytest.raises(CorruptError, match=r"4194304\.\.4194313"):
            span.result(codes(10, 2), lambda context, block, into: context, Buffers())

    def test_a_stored_span(self) -> None:
        values = codes(10, 3)
        span = SpanDelta("w", 0, 10, leaf_hashes(values), 2, stored=reading(values.tobytes()))
        assert np.array_equal(span.result(None, lambda context, block, into: context, Buffers()), values)
        with pytest.raises(CorruptError, match="tensor w"):
            other = span._replace(stored=reading(codes(10, 4).tobytes()))
            other.result(None, lambda context, block, into: context, Buffers())
