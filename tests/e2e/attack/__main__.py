"""Attacks from the command line; scripts/attack runs this.

    scripts/attack damages --count 10000        damage ada's home, then read
    scripts/attack damages-folder               damage a remote in a folder; damages-bucket: in a bucket
    scripts/attack kills --count 1000 --only push --only "gc remote"
    scripts/attack faults --count 100 --seed 7  work over a network that fails
    scripts/attack chains --count 200           publish links and follow them, and kill both sides
    scripts/attack replicas                     the same over a bucket that crashes too
    scripts/attack polls                        the same over a service, which is asked to say when the tag moves
    scripts/attack served --count 200           push to a service and pull from it, and kill both sides
    scripts/attack outages                      the same, while its bucket or its database goes away

Every failure is printed with the command that does it again. Exits 1 when there was any.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from tests.e2e.attack.attacks import ATTACKS, attacking
from tests.e2e.attack.damages import Tally
from tests.servers import Moto, SeaweedFS, start_postgres

_SAY_EVERY_S = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """Attack, and say what happened."""
    parser = argparse.ArgumentParser(
        "scripts/attack", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("attack", choices=ATTACKS)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--moto", action="store_true", help="the bucket is moto's, not SeaweedFS's")
    parser.add_argument("--only", action="append", default=[], help="this kind of object, or this command; repeatable")
    options = parser.parse_args(argv)
    # A forked process must not wait for threads that only its parent has.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    memory = Path("/dev/shm")
    name = shlex.join([options.attack, *["--moto"] * options.moto, *(f"--only={name}" for name in options.only)])
    tally, said, start = Tally(), time.monotonic(), time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="maskreg-attack-", dir=memory if memory.is_dir() else None)
        )
        attack = stack.enter_context(
            attacking(
                *(options.attack, Path(folder)),
                bucket=lambda: stack.enter_context(closing(Moto() if options.moto else SeaweedFS())),
                database=lambda: stack.enter_context(closing(start_postgres())),
                only=options.only,
            )
        )
        for number in range(options.first, options.first + options.count):
            before = len(tally.faults)
            attack.run(options.seed, number, tally)
            for fault in tally.faults[before:]:
                print(f"FAILED {number}: {fault}", flush=True)
                print(f"  again: scripts/attack {name} --seed {options.seed} --first {number} --count 1", flush=True)
            if time.monotonic() - said > _SAY_EVERY_S:
                said = time.monotonic()
                print(f"  {name}: {number - options.first + 1} of {options.count}", file=sys.stderr, flush=True)
    print(f"{name} --seed {options.seed} --first {options.first} --count {options.count}: "
          f"{len(tally.faults)} failures, {time.monotonic() - start:.0f} s")  # fmt: skip
    for what, count in sorted(tally.counts.items()):
        print(f"  {count:6} {what}")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
