"""Catalogs on both databases, and manifests and ref entries to put into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from maskreg.artifact.manifest import SCHEMA, FfnRatios, Manifest, Object, Part, Side, Totals
from maskreg.catalog import open_catalog
from maskreg.catalog.catalog import Catalog
from maskreg.catalog.models import METADATA
from maskreg.catalog.schema import upgrade
from maskreg.digest import Digest
from maskreg.ref import Card
from maskreg.store.reflog import RefEntry
from tests.servers import Postgres

START = datetime(2025, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
NewUrl = Callable[[], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> NewUrl:
    """URLs of databases that are empty yet."""
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        return server.new_database
    names = iter(range(100))
    return lambda: f"sqlite:///{tmp_path / f'catalog-{next(names)}.db'}"


@pytest.fixture
def url(new_url: NewUrl) -> str:
    """URL of a database with this code's schema."""
    fresh = new_url()
    upgrade(fresh)
    return fresh


@pytest.fixture(scope="session")
def shared_url(postgres: Postgres) -> str:
    """A PostgreSQL database that tests empty and use one after another: making one takes long."""
    url = postgres.new_database()
    upgrade(url)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """An empty catalog in a file, and one on PostgreSQL."""
    with empty_catalog(request.param, request, tmp_path) as opened:
        yield opened


def empty_catalog(kind: str, request: pytest.FixtureRequest, folder: Path) -> Catalog:
    """Open an empty catalog: ``sqlite`` or ``postgresql``."""
    if kind == "sqlite":
        return open_catalog(f"sqlite:///{folder / 'catalog.db'}")
    url: str = request.getfixturevalue("shared_url")
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute(f"TRUNCATE {', '.join(METADATA.tables)} RESTART IDENTITY".encode())
    return open_catalog(url)


def digest(number: int) -> Digest:
    return Digest.of(str(number).encode())


def manifest(
    *,
    nnz: int = 250,
    numel: int = 1000,
    ffn: tuple[float | None, float | None, float | None] = (0.3, 0.8, 1.2),
    kind: str = "delta",
    source: str = "source",
    size: int = 4096,
) -> Manifest:
    """A manifest; ``ffn`` is density, share of the mask and lift."""
    ratios = FfnRatios(
        param_share=0.66,
        energy_share=0.7,
        energy_lift=1.06,
        density=ffn[0],
        density_lift=ffn[2],
        mask_share=ffn[1],
        mask_lift=ffn[2],
    )
    side = {"params": numel, "tensors": 3, "dtypes": {"BF16": numel}}
    data = Object(key="data.zarr/mask/c/0", size=size, sha256=str(digest(0)))
    return Manifest(
        schema=SCHEMA,
        kind=kind,  # type: ignore[arg-type]
        encoder="test",
        rule="exact",
        exact=kind == "delta",
        source=Side(root=str(Digest.of(source.encode())), hub=f"org/{source}@abc", **side),  # type: ignore[arg-type]
        target=Side(root=str(digest(nnz)), **side),  # type: ignore[arg-type]
        totals=Totals(numel=numel, nnz=nnz, differing=nnz, energy=1.5, roles={}, layers={}, ffn=ratios),
        parts={"mask": Part(codec="zstd", objects=1, size=size)},
        objects=(data,),
    )


def seen_sources(catalog: Catalog) -> list[str]:
    """Paths where checkpoints were seen, the latest first."""
    with catalog.read() as connection:
        return list(connection.execute(text("SELECT path FROM seen_sources ORDER BY at DESC, id DESC")).scalars())


def entry(
    name: str = "qwen3-8b-opd",
    target: Digest | None = None,
    *,
    project: str = "default",
    tag: str = "latest",
    n: int = 1,
    card: Card = Card(),  # noqa: B008 (frozen)
    by: str = "ada",
    minutes: int = 0,
) -> RefEntry:
    """An entry of a ref log; a deletion when there is no target."""
    return RefEntry(
        project=project,
        name=name,
        tag=tag,
        n=n,
        digest=target,
        deleted=target is None,
        card=card,
        by=by,
        at=START + timedelta(minutes=minutes),
        write_id=f"{name}-{tag}-{n}",
        origin="",
        previous=digest(n) if n > 1 else None,
        removed=digest(0) if target is None else None,
    )
