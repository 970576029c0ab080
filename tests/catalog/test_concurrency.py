from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from maskreg.catalog import Measurement, Query, open_catalog
from maskreg.catalog.catalog import Catalog
from maskreg.catalog.schema import upgrade
from maskreg.store.reflog import RefEntry
from tests.catalog.conftest import NewUrl, digest, entry, manifest, seen_sources

PROCESSES = 4
WRITES = 8

# One process imports what they need and becomes all of them, which start when the test closes its standard input.
WRITERS = """
import os, sys
from maskreg.catalog import Event, Measurement, open_catalog
from tests.catalog.conftest import digest, entry, manifest
url, processes, writes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def write(me):
    sys.stdin.read()
    with open_catalog(url) as catalog:
        for number in range(writes):
            own = digest(me * 1000 + number)
            catalog.put_artifact(own, manifest(nnz=number))
            catalog.put_ref(entry(f"p{me}", own, tag=f"t{number}"))
            # All of them move this tag; the largest number has to win.
            catalog.put_ref(entry("all", own, n=number * 10 + me))
            catalog.record(Measurement(digest(0), "rlvr_overlap", number / writes, f"p{me}"))
            catalog.log(Event("publish", f"p{me}", detail={"number": number}))
            catalog.saw_source("root", f"/{me}/{number}")
            catalog.search()

children = []
for me in range(processes):
    child = os.fork()
    if not child:
        write(me)
        sys.exit()
    children.append(child)
print("ready", flush=True)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def run_writers(url: str) -> None:
    command = [sys.executable, "-c", WRITERS, url, str(PROCESSES), str(WRITES)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as writers:
        assert writers.stdout is not None
        assert writers.stdout.readline() == b"ready\n"
        _, errors = writers.communicate()
        assert writers.returncode == 0, errors.decode()


def test_processes_write_to_one_catalog_and_lose_nothing(new_url: NewUrl) -> None:
    url = new_url()
    # Every writer makes the schema of a fresh file; on a server, the operator makes it.
    if url.startswith("postgresql"):
        upgrade(url)
    run_writers(url)
    with open_catalog(url) as catalog:
        check(catalog)
        catalog.put_artifact(digest(0), manifest())
        catalog.put_ref(entry("measured", digest(0)))
        (known,) = catalog.search(Query(text="measured"))
        latest = catalog.measurements(digest(0))[-1]
        assert (known.rlvr_overlap, known.rlvr_against) == (latest.value, latest.against)


def check(catalog: Catalog) -> None:
    assert len(catalog.search(Query(text="p"))) == PROCESSES * WRITES
    (last,) = catalog.search(Query(text="all"))
    assert last.digest == digest((PROCESSES - 1) * 1000 + WRITES - 1)
    assert len(catalog.events(limit=1000)) == PROCESSES * WRITES
    assert len(seen_sources(catalog)) == PROCESSES * WRITES
    assert len(catalog.measurements(digest(0))) == PROCESSES * WRITES


def test_threads_share_a_catalog(catalog: Catalog) -> None:
    def work(number: int) -> int:
        catalog.put_artifact(digest(number), manifest(nnz=number))
        catalog.put_ref(entry(f"a{number}", digest(number)))
        catalog.record(Measurement(digest(number), "rlvr_overlap", 0.5))
        return len(catalog.search())

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(work, range(40))) <= 40
    assert len(catalog.search(Query(rlvr_overlap=(0.5, 0.5)))) == 40


def test_an_entry_indexed_during_a_rebuild_is_not_lost(url: str) -> None:
    with open_catalog(url) as one, open_catalog(url) as two, ThreadPoolExecutor(1) as pool:
        one.put_artifact(digest(1), manifest())
        one.put_ref(entry("a", digest(1), n=1))
        pending = []

        def entries() -> Iterator[RefEntry]:
            # The tag moves after the store was listed.
            yield entry("a", digest(1), n=1)
            pending.append(pool.submit(two.put_ref, entry("a", digest(1), n=2, by="bob")))

        one.rebuild(entries(), [(digest(1), manifest())])
        pending[0].result()
        (found,) = one.search()
        assert found.by == "bob"
