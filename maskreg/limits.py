"""Every limit on what comes from outside, each a named field with its unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Upper bounds, checked before memory is reserved or anything is decoded.

    Attributes:
        manifest_bytes: size of ``manifest.json``.
        tensors_json_bytes: size of ``tensors.json``.
        zarr_json_bytes: size of one ``zarr.json``.
        ref_bytes: size of one entry of a ref log.
        ref_entries: entries of one tag's log.
        heads_bytes: size of a signed list of the latest entries of a project's tags.
        heads_values: values in it.
        object_bytes: size of any one stored object.
        small_file_bytes: size of one config or tokenizer file that travels with an artifact.
        analysis_bytes: size of ``analysis.json``.
        analysis_values: values in it.
        objects: stored objects of one artifact.
        tensors: tensors of one checkpoint.
        numel: elements of one tensor.
        name_bytes: length of a tensor name, UTF-8.
        json_depth: nesting of any JSON document.
        json_values: values in a JSON document for which no other number is given.
        safetensors_header_bytes: size of a safetensors header.
        index_json_bytes: size of ``model.safetensors.index.json``, or of another weight index.
        archive_bytes: size of the directory of an archive of PyTorch, which lists its entries, or of its pickle.
        pickle_bytes: size of one pickle: of an archive of PyTorch, or the metadata of a distributed checkpoint.
        pickle_steps: instructions in it.
    """

    manifest_bytes: int = 4 << 20
    tensors_json_bytes: int = 64 << 20
    zarr_json_bytes: int = 64 << 10
    ref_bytes: int = 256 << 10
    ref_entries: int = 1_000_000_000
    heads_bytes: int = 256 << 20
    heads_values: int = 4_000_000
    object_bytes: int = 128 << 20
    small_file_bytes: int = 64 << 20
    analysis_bytes: int = 128 << 20
    analysis_values: int = 16_000_000
    objects: int = 30_000
    tensors: int = 200_000
    numel: int = 1 << 63
    name_bytes: int = 1_024
    json_depth: int = 32
    json_values: int = 250_000
    safetensors_header_bytes: int = 100_000_000
    index_json_bytes: int = 64 << 20
    archive_bytes: int = 64 << 20
    pickle_bytes: int = 256 << 20
    pickle_steps: int = 20_000_000


LIMITS = Limits()
"""The defaults. Functions that read from outside take a ``Limits`` and default to these."""
