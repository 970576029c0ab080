"""kill -9 at random moments: the next run completes, nothing is torn, verified objects are not fetched again.

As a program it kills more often than the tests do: ``python -m tests.e2e.killing --kills 200``.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.running import Person, big_pair, copy_of, same_files

ARTIFACTS = "artifacts/sha256"


@dataclass(frozen=True)
class Stage:
    """Two users, a remote folder, and a pair of checkpoints."""

    folder: Path
    author: Person
    colleague: Person
    source: Path
    target: Path
    remote: Path


def set_up(folder: Path, mebibytes: int) -> Stage:
    """Everything up to a pushed artifact ``opd``."""
    source, target = big_pair(folder / "pair", mebibytes)
    remote = folder / "remote"
    people = [Person(folder / name) for name in ("author", "colleague")]
    for person in people:
        person.run("remote", "add", "team", remote.as_uri())
    author, colleague = people
    author.run("extract", source, target, "--name", "opd")
    author.run("push", "opd")
    return Stage(folder, author, colleague, source, target, remote)


def killed(person: Person, rng: random.Random, seconds: float, *args: str | Path) -> bool:
    """Start a command and kill it after a random part of ``seconds``; returns whether it was still running."""
    process = person.start(*args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        # Earlier kills would mostly hit the start of the interpreter.
        process.wait(timeout=seconds * rng.uniform(0.25, 1.0))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.monotonic()
    work()
    return time.monotonic() - start


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file below a folder: a file that is not rewritten keeps both."""
    files = {p.relative_to(folder).as_posix(): p.stat() for p in folder.rglob("*") if p.is_file()}
    return {name: (status.st_ino, status.st_mtime_ns) for name, status in files.items()}


def kill_extract(stage: Stage, rng: random.Random, kills: int) -> int:
    """Extract into an empty registry; the artifact is the same as that of an undisturbed run."""
    digest = stage.author.json("show", "opd")["digest"]
    person = Person(stage.folder / "extracting")
    command = ("extract", stage.source, stage.target, "--name", "opd")
    seconds = timed(lambda: person.run(*command))
    hits = 0
    for number in range(kills):
        person = Person(stage.folder / f"extracting-{number}")
        hits += killed(person, rng, seconds, *command)
        person.run("verify", "--all")
        person.run(*command)
        assert person.json("show", "opd")["digest"] == digest
        person.run("verify", "opd")
        copy_of(person.home, stage.folder / "trash")
    return hits


def kill_push(stage: Stage, rng: random.Random, kills: int) -> int:
    """Push into an empty remote; a visible tag always has a complete artifact."""
    hits = 0
    remote = stage.folder / "push-remote"
    person = Person(stage.folder / "pushing")
    copy_of(stage.author.registry, person.registry)
    seconds = 0.0
    for number in range(kills + 1):
        copy_of(stage.remote, remote)
        for entry in ("artifacts", "refs"):
            copy_of(stage.remote / entry, remote / entry)
            subprocess.run(["rm", "-rf", str(remote / entry)], check=True)
        if number == 0:
            person.run("remote", "add", "team", remote.as_uri())
            seconds = timed(lambda: person.run("push", "opd"))
            continue
        hits += killed(person, rng, seconds, "push", "opd")
        reader = Person(stage.folder / f"reader-{number}")
        reader.run("remote", "add", "team", remote.as_uri())
        if (remote / "refs").exists():
            reader.run("pull", "opd")
        before = files_of(remote / ARTIFACTS) if (remote / ARTIFACTS).exists() else {}
        person.run("push", "opd")
        after = files_of(remote / ARTIFACTS)
        rewritten = [n for n in before if before[n] != after[n] and not n.endswith("manifest.json")]
        assert not rewritten, f"sent again: {rewritten}"
        reader.run("pull", "opd")
        reader.run("verify", "opd")
    return hits


def kill_pull(stage: Stage, rng: random.Random, kills: int) -> int:
    """Pull into an empty registry; verified objects are not fetched again."""
    seconds = timed(lambda: stage.colleague.run("pull", "opd"))
    hits = reused = 0
    for number in range(kills):
        person = Person(stage.folder / f"pulling-{number}")
        person.run("remote", "add", "team", stage.remote.as_uri())
        hits += killed(person, rng, seconds, "pull", "opd")
        # Objects wait in "incoming" and are moved, not copied, once their part is complete.
        before = {entry for folder in ("incoming", ARTIFACTS) for entry in arrived(person.registry / folder)}
        person.run("pull", "opd")
        fetched_again = before - arrived(person.registry / ARTIFACTS)
        assert not fetched_again, f"{len(fetched_again)} objects were fetched again"
        reused += len(before)
        person.run("verify", "opd")
        copy_of(person.home, stage.folder / "trash")
    assert reused or kills < 10, "no kill came after the first object"
    return hits


def arrived(folder: Path) -> set[tuple[int, int]]:
    """Inode and time of the objects below a folder, without manifests, which are always fetched."""
    files = files_of(folder) if folder.exists() else {}
    return {entry for name, entry in files.items() if not name.endswith("manifest.json")}


def kill_apply(stage: Stage, rng: random.Random, kills: int) -> int:
    """Apply over earlier outputs; the output is absent or complete, and stale work folders are removed."""
    person = stage.colleague
    person.run("pull", "opd")
    folder = stage.folder / "applying"
    folder.mkdir(exist_ok=True)
    command = ("apply", "opd", "--source", stage.source, "-o", folder / "out", "--force")
    seconds = timed(lambda: person.run(*command))
    hits = 0
    for _ in range(kills):
        hits += killed(person, rng, seconds, *command)
        if (folder / "out").exists():
            assert same_files(folder / "out", stage.target)
        person.run(*command)
        assert same_files(folder / "out", stage.target)
        assert [p.name for p in folder.iterdir()] == ["out"]
    return hits


def kill_gc(stage: Stage, rng: random.Random, kills: int) -> int:
    """Collect garbage beside a live artifact, which stays complete; the garbage is gone in the end."""
    person = Person(stage.folder / "collecting")
    seconds, hits = 0.0, 0
    for number in range(kills + 1):
        copy_of(stage.author.registry, person.registry)
        person.run("extract", stage.target, stage.source, "--name", "back")
        person.run("rm", "back", "-y")
        if number == 0:
            seconds = timed(lambda: person.run("gc", "--grace", "0s"))
            continue
        hits += killed(person, rng, seconds, "gc", "--grace", "0s")
        person.run("verify", "opd")
        person.run("gc", "--grace", "0s")
        person.run("verify", "opd")
        for folder in ("doomed", "gc/runs", ".tmp", "staging"):
            # Gone, or an empty folder.
            assert not any((person.registry / folder).glob("*")), f"{folder} is left behind"
        left = {name.split("/")[0] for name in files_of(person.registry / ARTIFACTS)}
        assert left == {person.json("show", "opd")["digest"].removeprefix("sha256:")}
    return hits


COMMANDS: dict[str, Callable[[Stage, random.Random, int], int]] = {
    "extract": kill_extract,
    "push": kill_push,
    "pull": kill_pull,
    "apply": kill_apply,
    "gc": kill_gc,
}


def main() -> None:
    """Kill every command many times and print how often it was running."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kills of each command")
    parser.add_argument("--mebibytes", type=int, default=64, help="size of each checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=COMMANDS, action="append", help="this command; repeatable")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maskreg-kill-") as folder:
        stage = set_up(Path(folder), options.mebibytes)
        for name in options.only or COMMANDS:
            hits = COMMANDS[name](stage, random.Random(options.seed), options.kills)
            print(
                f"{name}: {options.kills} kills, {hits} while running; every rerun completed, nothing torn", flush=True
            )


if __name__ == "__main__":
    main()
