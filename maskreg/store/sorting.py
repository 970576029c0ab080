"""Listings in the order of keys, in bounded memory: what is longer than one run is sorted in runs on disk.

Nearly all services list by key, and their listing is one run. Some list a folder's keys together, so that ``a/x`` comes
before ``a-b``: then each stretch of their listing becomes a run, and the runs are merged::

    listed    a/x  a/y | a-b  b/x       two stretches, each sorted
    merged    a-b  a/x  a/y  b/x
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from itertools import islice
from operator import attrgetter
from tempfile import TemporaryFile
from typing import TextIO

from maskreg.store.base import ObjectInfo

RUN = 50_000
"""Objects that are sorted in memory."""

_KEY = attrgetter("key")


def in_key_order(listing: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
    """The same objects in the order of their keys.

    Args:
        listing: in any order, keys without line breaks and tabs; read to its end before the first object is given out.
    """
    rest = iter(listing)
    first = sorted(islice(rest, RUN), key=_KEY)
    return iter(first) if len(first) < RUN else _merged(first, rest)


def _merged(stretch: list[ObjectInfo], rest: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
    with ExitStack() as stack:
        files: list[TextIO] = []
        last = ""
        while stretch:
            # One that goes on where the last one ended needs no file of its own.
            if not files or stretch[0].key < last:
                files.append(stack.enter_context(TemporaryFile("w+", encoding="utf-8", newline="\n")))
            files[-1].writelines(f"{info.key}\t{info.size}\t{info.modified.isoformat()}\n" for info in stretch)
            last = stretch[-1].key
            stretch = sorted(islice(rest, RUN), key=_KEY)
        yield from heapq.merge(*map(_read, files), key=_KEY)


def _read(file: TextIO) -> Iterator[ObjectInfo]:
    file.seek(0)
    for line in file:
        key, size, modified = line[:-1].split("\t")
        yield ObjectInfo(key, int(size), datetime.fromisoformat(modified))
