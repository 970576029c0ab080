"""Digests, leaves and fingerprints: known values, and what they do and do not depend on."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL, Digest, fingerprint, fingerprint_root, leaf_hashes, short_key

EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_digest_of_nothing() -> None:
    digest = Digest.of(b"")
    assert digest == EMPTY
    assert digest.hex == EMPTY.removeprefix("sha256:")
    assert digest.short == "sha256:e3b0c44298fc"


@given(st.binary())
def test_bytes_of_any_kind_have_one_digest(data: bytes) -> None:
    digest = Digest.of(data)
    assert digest == Digest.of(bytearray(data)) == Digest.of(memoryview(data))
    assert digest.hex == hashlib.sha256(data).hexdigest()
    assert Digest(str(digest)) == digest


@pytest.mark.parametrize(
    "text",
    [
        *("", "sha256:", EMPTY[7:], EMPTY[:-1], EMPTY + "0", EMPTY.upper(), "SHA256:" + EMPTY[7:], " " + EMPTY),
        *(EMPTY + "\n", EMPTY + " ", "md5:" + "0" * 32, "sha256:" + "g" * 64, "sha256:" + "../" * 21 + "a"),
        *("sha256:" + "٣" * 64, "sha256:" + "０" * 64, "sha512:" + "0" * 64, "sha256-" + "0" * 64),
    ],
)
def test_what_is_no_digest(text: str) -> None:
    with pytest.raises(ValueError, match="sha256"):
        Digest(text)


@given(st.text(max_size=80))
def test_any_text_is_a_digest_or_refused(text: str) -> None:
    with pytest.raises(ValueError, match="sha256"):
        Digest(text)


@pytest.mark.parametrize("numel", [0, 1, 7, LEAF_NUMEL - 1, LEAF_NUMEL, LEAF_NUMEL + 1, 2 * LEAF_NUMEL + 3])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
def test_one_hash_for_each_leaf(numel: int, dtype: str) -> None:
    data = np.arange(numel).astype(dtype)
    leaves = leaf_hashes(data)
    assert leaves.dtype == np.uint8
    assert leaves.shape == (-(-numel // LEAF_NUMEL), FINGERPRINT_BYTES)
    for i, leaf in enumerate(leaves):
        part = data[i * LEAF_NUMEL : (i + 1) * LEAF_NUMEL].tobytes()
        assert leaf.tobytes() == xxhash.xxh3_128_digest(part)


def test_known_values() -> None:
    # Fixed for ever: they are written into artifacts.
    data = np.arange(LEAF_NUMEL + 10, dtype=np.uint16)
    assert fingerprint(leaf_hashes(data)) == _expected(data)
    assert xxhash.xxh3_128_hexdigest(b"") == "99aa06d3014798d86001c324468d497f"
    assert fingerprint(leaf_hashes(np.zeros(0, np.uint16))) == "99aa06d3014798d86001c324468d497f"
    assert fingerprint_root([]) == EMPTY


def _expected(data: npt.NDArray[np.uint16]) -> str:
    first, rest = data[:LEAF_NUMEL].tobytes(), data[LEAF_NUMEL:].tobytes()
    return xxhash.xxh3_128_hexdigest(xxhash.xxh3_128_digest(first) + xxhash.xxh3_128_digest(rest))


def test_the_shape_does_not_count_and_the_order_does() -> None:
    data = np.random.default_rng(0).integers(0, 1 << 16, (512, 1030), np.uint16)
    assert np.array_equal(leaf_hashes(data), leaf_hashes(data.reshape(-1)))
    assert np.array_equal(leaf_hashes(data), leaf_hashes(data.reshape(2, 256, 1030)))
    turned = data.T
    assert not turned.flags.c_contiguous
    assert np.array_equal(leaf_hashes(turned), leaf_hashes(np.ascontiguousarray(turned)))
    assert not np.array_equal(leaf_hashes(turned), leaf_hashes(data))


def test_one_bit_changes_one_leaf_and_the_fingerprint() -> None:
    data = np.zeros(3 * LEAF_NUMEL, np.uint16)
    changed = data.copy()
    changed[LEAF_NUMEL + 3] = 1
    same = (leaf_hashes(data) == leaf_hashes(changed)).all(axis=1)
    assert same.tolist() == [True, False, True]
    assert fingerprint(leaf_hashes(data)) != fingerprint(leaf_hashes(changed))


Rows = list[tuple[str, str, tuple[int, ...], str]]
rows = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8"), max_size=8),
        st.sampled_from(["BF16", "F32"]),
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
        st.binary(max_size=2).map(xxhash.xxh3_128_hexdigest),
    ),
    max_size=5,
    unique_by=lambda row: row[0],
)


@given(rows, st.randoms(use_true_random=False))
def test_a_root_does_not_depend_on_the_order(tensors: Rows, random: object) -> None:
    shuffled = list(tensors)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fingerprint_root(shuffled) == fingerprint_root(iter(tensors))
    Digest(fingerprint_root(tensors))


@pytest.mark.parametrize(
    "changed",
    [
        *(("v", "BF16", (2, 3), "f"), ("w", "F16", (2, 3), "f"), ("w", "BF16", (3, 2), "f")),
        *(("w", "BF16", (6,), "f"), ("w", "BF16", (2, 3), "e"), ("w\n", "BF16", (2, 3), "f")),
    ],
)
def test_every_field_counts(changed: tuple[str, str, tuple[int, ...], str]) -> None:
    assert fingerprint_root([("w", "BF16", (2, 3), "f")]) != fingerprint_root([changed])


def test_a_text_stands_as_64_bits_in_draws() -> None:
    """The hash of nothing is in the description of XXH3; other values would draw other baselines."""
    assert short_key("") == 0x2D06800538D394C2
    assert short_key("é") == xxhash.xxh3_64_intdigest("é".encode())
