"""The records that keep commands from harm: whether each of them can be read.

They keep garbage collection from deleting what has a name, and a push from moving a tag over what somebody else set. A
damaged one makes the command refuse, or keep an artifact for ever; a missing one only takes away its check.
"""

from __future__ import annotations

import threading

from maskreg.errors import CorruptError, DataError, NotFoundError
from maskreg.parallel import each
from maskreg.progress import Progress, counting
from maskreg.registry.garbage.doubts import LAST, read_last
from maskreg.registry.registry import Registry
from maskreg.registry.transfer.followed import damaged_records
from maskreg.store.backrefs import NAMES, BackReference
from maskreg.store.base import ObjectInfo
from maskreg.store.chain import removal


def damaged_guards(registry: Registry, jobs: int, progress: Progress) -> list[CorruptError]:
    """Back references, what is followed of remotes, and the record of the last collection, that cannot be read; by key.

    Args:
        registry: whose.
        jobs: objects that are read at the same time.
        progress: progress callback, in back references.

    Raises:
        UnavailableError, NotAllowedError: the store cannot be read.
    """
    store = registry.store
    damaged: list[CorruptError] = []
    lock = threading.Lock()

    def read(info: ObjectInfo) -> None:
        try:
            reference = BackReference.of(info)
            if reference is None:
                hint = f"look at it, then remove it: {removal(store.url, info.key)}"
                raise CorruptError(info.key, "not the key of a back reference", hint=hint)
            reference.read(store)
        except NotFoundError:
            # A collection has just deleted it.
            return
        except CorruptError as error:
            with lock:
                damaged.append(error)

    names = (info for info in store.list(NAMES) if not info.key.rpartition("/")[2].startswith("."))
    each(counting(progress, "read back references", names), read, jobs)
    try:
        read_last(registry)
    except DataError as error:
        damaged.append(CorruptError(LAST, error.message.removeprefix(f"{LAST}: "), hint=error.hint, **error.facts))
    damaged += damaged_records(store)
    return sorted(damaged, key=lambda error: error.key)
