"""Attacks from the command line; scripts/attack runs this.

    scripts/attack damages --count 10000
    scripts/attack kills --count 1000 --only push --only "gc remote"
    scripts/attack faults --count 100 --seed 7
    scripts/attack chains --count 200
    scripts/attack replicas --count 100
    scripts/attack polls --count 100
    scripts/attack served --count 200
    scripts/attack outages --count 100

Every failure is printed with the command that does it again. Exits 1 when there was any.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.e2e.attack.alone import NAMES, attacking
from tests.e2e.attack.damages import Damages, Tally
from tests.e2e.attack.kills import Kills, world_of
from tests.e2e.attack.people import shared_clients
from tests.e2e.attack.stage import Site, set_up
from tests.e2e.attack.writers import writers
from tests.servers import Moto, S3Server, SeaweedFS

WHERE = {"local": 8, "folder": 7, "seaweed": 4, "moto": 1}
"""Where objects are damaged, and the share of the damages."""

SERVERS: dict[str, Callable[[], S3Server]] = {"seaweed": SeaweedFS, "moto": Moto}
"""Real servers, by name."""

_SAY_EVERY_S = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """Attack, and say what happened."""
    options = _parser().parse_args(argv)
    # A forked process must not wait for threads that only its parent has.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="maskreg-attack-", dir=memory if memory.is_dir() else None) as folder:
        if options.attack == "damages":
            tally = damages(options, Path(folder))
        elif options.attack == "kills":
            tally = kills(options, Path(folder))
        else:
            tally = Tally()
            with attacking(options.attack, Path(folder)) as attack:
                numbers = range(options.first, options.first + options.count)
                _run(options.attack, options, numbers, attack.run, tally)
    print(f"{options.attack}: {len(tally.faults)} failures")
    return 1 if tally.faults else 0


def damages(options: argparse.Namespace, folder: Path) -> Tally:
    """Damage objects, and read."""
    chosen = options.where or list(WHERE)
    total = sum(WHERE[name] for name in chosen)
    tally = Tally()
    for name in chosen:
        count = options.count * WHERE[name] // total
        with _site(name, folder / name) as site, shared_clients():
            attack = Damages(set_up(folder / name, site), remote=name != "local", only=options.only)
            numbers = range(options.first, options.first + count)
            _run(f"damages --where {name}", options, numbers, attack.run, tally)
    return tally


def kills(options: argparse.Namespace, folder: Path) -> Tally:
    """Kill commands, and look."""
    stage = set_up(folder, Site((folder / "remote").as_uri()))
    world = world_of(stage)
    chosen = [writer for writer in writers(stage) if not options.only or writer.name in options.only]
    tally = Tally()
    for number, writer in enumerate(chosen):
        count = options.count // len(chosen) + (number < options.count % len(chosen))
        attack = Kills(stage, writer, world)
        numbers = range(options.first, options.first + count)
        _run(f"kills --only {shlex.quote(writer.name)}", options, numbers, attack.run, tally)
    return tally


def _run(
    name: str, options: argparse.Namespace, numbers: range, attack: Callable[[int, int, Tally], None], total: Tally
) -> None:
    tally = Tally()
    start, cpu, said = time.monotonic(), time.process_time(), time.monotonic()
    for number in numbers:
        before = len(tally.faults)
        attack(options.seed, number, tally)
        for fault in tally.faults[before:]:
            print(f"FAILED {fault}\n  again: scripts/attack {name} --seed {options.seed} --first {number} --count 1")
        if time.monotonic() - said > _SAY_EVERY_S:
            said = time.monotonic()
            print(f"  {name}: {number - numbers.start + 1} of {len(numbers)}", file=sys.stderr, flush=True)
    seconds, cpu = time.monotonic() - start, time.process_time() - cpu
    print(f"{name} --seed {options.seed} --first {numbers.start} --count {len(numbers)}: "
          f"{len(tally.faults)} failures, {seconds:.0f} s, {cpu:.0f} CPU seconds", flush=True)  # fmt: skip
    for what, count in sorted(tally.counts.items()):
        print(f"  {count:6} {what}")
    total.faults += tally.faults
    total.counts += tally.counts


@contextmanager
def _site(name: str, folder: Path) -> Iterator[Site]:
    folder.mkdir()
    if name not in SERVERS:
        yield Site((folder / "remote").as_uri())
        return
    with closing(SERVERS[name]()) as server:
        yield Site(f"s3://{server.new_bucket()}/team", server.endpoint, server.env())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "scripts/attack", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("attack", choices=["damages", "kills", *NAMES])
    parser.add_argument("--count", type=int, default=100, help="how many, over everything that is chosen")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--where", choices=WHERE, action="append", help="damages: where; repeatable")
    parser.add_argument(
        "--only", action="append", default=[], help="kills: this command; damages: this kind; repeatable"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
