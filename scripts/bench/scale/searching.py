"""What searches of a large catalog cost: time, CPU time of database and client, and pages of the database.

Wall time suffers from other work of the machine. CPU time does not, and the pages that a search touches depend on
nothing but its plan: a filter that scans shows there, whatever the machine does.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import event, text

from maskreg.catalog.query import Query
from maskreg.catalog.sql import SqlCatalog
from scripts.bench.scale.filling import TAGS_OF_ARTIFACT, TAGS_OF_NAME, TOPICS, digest_of, project_of, tag_of
from scripts.bench.service.filling import FAMILIES, LICENSES, METHODS

LIMIT = 50


@dataclass(frozen=True)
class Cost:
    """What searches of one kind cost.

    Attributes:
        name: what they look for.
        median_ms: wall time, milliseconds.
        p95_ms: the same, 95th percentile.
        cpu_ms: CPU time of database and client together, milliseconds, 95th percentile.
        pages: pages of 8 KiB that the slowest touched.
        scans: tables that its plan reads whole.
    """

    name: str
    median_ms: float
    p95_ms: float
    cpu_ms: float
    pages: int
    scans: tuple[str, ...]


def kinds(artifacts: int) -> dict[str, Callable[[], Query]]:
    """Searches that people make, drawn at random; one of each kind at each call."""
    tags = artifacts * TAGS_OF_ARTIFACT

    def tag() -> int:
        return random.randrange(tags)

    def low() -> float:
        return random.uniform(0.1, 0.5)

    def near(value: float, width: float) -> tuple[float, float]:
        return value, value + width

    return {
        "the newest": Query,
        "a word": lambda: Query(text=random.choice(TOPICS)),
        "two words": lambda: Query(text=" ".join(random.sample(TOPICS, 2))),
        "part of a name": lambda: Query(text=f"run-{tag() // TAGS_OF_NAME:07d}"),
        "a number in a text": lambda: Query(text=f"{tag():08d}"),
        "nothing matches": lambda: Query(text="no-such-word-anywhere"),
        "the beginning of a digest": lambda: Query(text=digest_of(random.randrange(artifacts))[:19]),
        "family and method": lambda: Query(family=random.choice(FAMILIES), method=random.choice(METHODS)),
        "a family that nobody has": lambda: Query(family="no-such-family"),
        "license": lambda: Query(license=random.choice(LICENSES[:3])),
        "a project": lambda: Query(project=project_of(tag())),
        "a project, by name": lambda: Query(project=project_of(tag()), sort="name", descending=False),
        "a family, in 300 projects": lambda: Query(
            family=FAMILIES[0], projects=frozenset(project_of(tag()) for _ in range(300))
        ),
        "density, by density": lambda: Query(density=near(low(), 0.05), sort="density"),
        "density, the newest": lambda: Query(density=near(low(), 0.05)),
        "a narrow density, the newest": lambda: Query(density=near(low(), 0.0001)),
        "FFN lift, by lift": lambda: Query(ffn_lift=(1.05, float("inf")), sort="ffn_lift"),
        "a rare FFN lift, the newest": lambda: Query(ffn_lift=(1.3, float("inf"))),
        "RLVR overlap": lambda: Query(rlvr_overlap=(2.5, 3.0)),
        "RLVR overlap, by overlap": lambda: Query(rlvr_overlap=(2.5, 3.0), sort="rlvr_overlap"),
        "the largest": lambda: Query(sort="size"),
        "kind": lambda: Query(kind="baseline"),
        "a kind of a project": lambda: Query(kind="baseline", project=project_of(tag())),
        "names of an artifact": lambda: Query(digest=digest_of(random.randrange(artifacts))),
        "a tag": lambda: Query(tag=tag_of(tag()), project=project_of(tag())),
        "a word in a project": lambda: Query(text=random.choice(TOPICS), project=project_of(tag())),
        "family, density and license": lambda: Query(
            family=random.choice(FAMILIES), density=near(low(), 0.05), license=random.choice(LICENSES[:3])
        ),
    }


def search_costs(url: str, artifacts: int, requests: int = 40) -> Iterator[Cost]:
    """Search with each kind of query, and its third page, one after another."""
    with SqlCatalog.open(url) as catalog:
        spy = _Spy(catalog)
        for name, query in kinds(artifacts).items():
            yield _cost(spy, name, query, requests)
        pages = {
            "the third page of a word": lambda: Query(text=random.choice(TOPICS)),
            "the third page by size": lambda: Query(sort="size"),
            "the third page by lift": lambda: Query(sort="ffn_lift"),
        }
        for name, query in pages.items():
            yield _cost(spy, name, partial(_third, catalog, query), requests)


def _third(catalog: SqlCatalog, make: Callable[[], Query]) -> Query:
    query = make()
    for _ in range(2):
        page = catalog.search(replace(query, limit=LIMIT))
        if not page:
            break
        query = replace(query, after=page[-1].position(query.sort))
    return query


class _Spy:
    # The statements of a catalog, and the process of the database that runs them.

    def __init__(self, catalog: SqlCatalog) -> None:
        self.catalog = catalog
        self.statements: list[tuple[str, Any]] = []
        event.listen(catalog._engine, "before_cursor_execute", self._note)

    def _note(self, connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        self.statements.append((statement, parameters))

    def backend(self) -> Path:
        with self.catalog._read() as connection:
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar()
        return Path(f"/proc/{pid}/schedstat")

    def explain(self, statements: list[tuple[str, Any]]) -> tuple[int, tuple[str, ...]]:
        pages, scans = 0, set()
        with self.catalog._read() as connection:
            for statement, parameters in statements:
                rows = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters)
                plan = rows.scalar_one()[0]["Plan"]
                pages += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
                scans |= {node["Relation Name"] for node in _nodes(plan) if node["Node Type"] == "Seq Scan"}
        return pages, tuple(sorted(scans))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _cost(spy: _Spy, name: str, query: Callable[[], Query], requests: int) -> Cost:
    walls: list[float] = []
    cpus: list[float] = []
    slowest: tuple[float, list[tuple[str, Any]]] = (0.0, [])
    for number in range(requests + 5):
        asked = replace(query(), limit=LIMIT)
        backend = spy.backend()
        spy.statements.clear()
        before, client, start = _cpu_ns(backend), time.process_time_ns(), time.perf_counter_ns()
        spy.catalog.search(asked)
        wall = (time.perf_counter_ns() - start) / 1e6
        cpu = (_cpu_ns(backend) - before + time.process_time_ns() - client) / 1e6
        if number < 5:
            continue  # warms up
        walls.append(wall)
        cpus.append(cpu)
        if cpu > slowest[0]:
            slowest = cpu, list(spy.statements)
    pages, scans = spy.explain(slowest[1])
    return Cost(name, statistics.median(walls), _p95(walls), _p95(cpus), pages, scans)


def _cpu_ns(schedstat: Path) -> int:
    return int(schedstat.read_text().split()[0])


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)] if values else 0.0
