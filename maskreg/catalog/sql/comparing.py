"""Comparing an index with the store that it was filled from, by the seals of the rows that the store gives."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from maskreg.catalog.sql.models import ArtifactRow, RefRow
from maskreg.catalog.tables.rows import Overlap, artifact_row, ref_row
from maskreg.digest import Digest
from maskreg.ref import Ref

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.store.reflog import RefEntry


def differing(
    connection: Connection,
    entries: Iterable[RefEntry],
    manifests: Iterable[tuple[Digest, Manifest]],
    except_refs: Collection[Ref],
    except_artifacts: Collection[Digest],
) -> Iterator[str]:
    """Names and digests whose row is missing, surplus, or not what the store gives; only seals are held in memory.

    The connection is to a catalog whose rows match their seals; the other arguments are as for
    :meth:`maskreg.catalog.base.Catalog.differing`.

    Yields:
        What differs, one sentence each.
    """
    key = (RefRow.project, RefRow.name, RefRow.tag)
    refs = {Ref(*row[:3]): row[3] for row in connection.execute(select(*key, RefRow.seal))}
    named = set()
    for entry in entries:
        named.add(entry.digest)
        stored = refs.pop(entry.ref, "")
        if stored != ref_row(entry)["seal"]:
            yield f"{entry.ref} is {'other than' if stored else 'missing, and'} in the store"
    yield from (f"{ref} is not in the store" for ref in refs if ref not in except_refs)
    columns = (ArtifactRow.digest, ArtifactRow.seal, ArtifactRow.rlvr_overlap, ArtifactRow.rlvr_against)
    artifacts: dict[str, tuple[str | None, Overlap]] = {
        digest: (seal, (overlap, against)) for digest, seal, overlap, against in connection.execute(select(*columns))
    }
    for digest, manifest in manifests:
        seal, overlap = artifacts.pop(digest, ("", (None, None)))
        if seal != artifact_row(digest, manifest, overlap)["seal"]:
            yield f"{digest.short} is {'other than' if seal else 'missing, and'} in the store"
    # A collection that died before it took an artifact out of the index has left a row that nothing points to.
    surplus = (Digest(digest) for digest in artifacts if digest in named)
    yield from (f"{digest.short} is not in the store" for digest in surplus if digest not in except_artifacts)
