"""Readers, what they say without damage, and the verdict on what they say with it.

A reader can give the undamaged answer, or fail with a message that names the damage, or give another answer with a
note that names it. Everything else is silent::

    exit, output and effect as without damage           same
    exit 0, effect the same, a note names the damage     noted
    an exit code of the table, effect none or the same   refused, and the message names the damage
    anything else                                        a fault
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.e2e.attack.people import Member, Said
from tests.e2e.attack.stage import Stage, contents, kind_of

REFUSALS = {1, 2, 65, 66, 69, 73, 75, 77, 78}
"""Exit codes of a command that refuses; 70 is a bug."""

Effect = Mapping[str, str] | None
"""Digest of every file that a command has made; None when it has made nothing."""


@dataclass(frozen=True)
class Reader:
    """A command that reads, and what it makes.

    Attributes:
        name: for reports.
        who: ``ada``, ``bob`` or ``carol``, whose home is new.
        args: the command.
        makes: the file or folder that it makes, if any.
        stdin: the file that it reads from standard input, if any.
    """

    name: str
    who: str
    args: tuple[str | Path, ...]
    makes: Path | None = None
    stdin: Path | None = None


@dataclass(frozen=True)
class Answer:
    """What a reader said and made."""

    said: Said
    effect: Effect


def ask(reader: Reader, member: Member) -> Answer:
    """Run a reader."""
    # A pipe that is not there is an empty one.
    stdin = reader.stdin.read_bytes() if reader.stdin and reader.stdin.exists() else b""
    said = member.run(*reader.args, stdin=stdin)
    return Answer(said, effect_of(reader.makes))


def effect_of(path: Path | None) -> Effect:
    """Digests of a file, or of the files in a folder; None when there is none."""
    if path is None or not path.exists():
        return None
    entries = contents(path) if path.is_dir() else {path.name: path.read_bytes()}
    return {key: sha256(data).hexdigest() for key, data in entries.items()}


def local_readers(stage: Stage) -> list[Reader]:
    """Commands that read ada's registry, her settings, and her pipe."""
    source = stage.source
    out = stage.folder / "made"
    back = ("apply", "opd", "--revert", "--source", stage.target, "-o", out)
    return [
        Reader("list", "ada", ("list", "--json")),
        Reader("list filtered", "ada", ("list", "--family", "toy", "--density", "0.1..0.9", "--sort", "density")),
        Reader("show", "ada", ("show", "opd", "--json")),
        Reader("log", "ada", ("log", "rlvr:best", "--json")),
        Reader("show analysis", "ada", ("analyze", "opd-analysis", "--json")),
        Reader("compare", "ada", ("compare", "opd", "rlvr:best", "opd-null", "--source", source, "--json")),
        Reader("apply", "ada", ("apply", "opd", "--source", source, "-o", out), out),
        Reader("revert", "ada", back, out),
        Reader("doctor", "ada", ("doctor", "--json")),
        Reader("gc", "ada", ("gc", "--dry-run", "--grace", "0s", "--json")),
        Reader("pull", "ada", ("pull", "rlvr"), stage.artifact(stage.ada, "rlvr")),
        Reader("apply pipe", "ada", ("apply", "-", "--source", source, "-o", out), out, stage.ada.home / "pull.ndjson"),
    ]


def remote_readers(stage: Stage) -> list[Reader]:
    """Commands that read the remote, in homes that know it and in a new one."""
    bob, carol = (stage.artifact(member, "opd") for member in (stage.bob, stage.carol))
    team = ("--remote", "team")
    return [
        Reader("list new", "carol", ("list", *team, "--json")),
        Reader("pull new", "carol", ("pull", "opd"), carol),
        Reader("pull best new", "carol", ("pull", "rlvr:best"), carol),
        Reader("list", "bob", ("list", *team, "--json")),
        Reader("show", "bob", ("show", "rlvr:best", *team, "--json")),
        Reader("log", "bob", ("log", "rlvr:best", *team, "--json")),
        Reader("pull", "bob", ("pull", "opd"), bob),
        Reader("pull best", "bob", ("pull", "rlvr:best"), bob),
        Reader("doctor", "ada", ("doctor", "--json")),
        Reader("gc", "ada", ("gc", "--dry-run", "--grace", "0s", *team, "--json")),
    ]


def verifier(remote: bool) -> Reader:
    """The command that has to see every damage."""
    return Reader("verify", "ada", ("verify", "--all", "--json", *(["--remote", "team"] if remote else [])))


def tokens(keys: Iterable[str], names: Mapping[str, Iterable[str]]) -> set[str]:
    """Texts that name one of these objects in a message.

    Args:
        keys: the objects.
        names: references to every artifact, by digest.
    """
    texts: set[str] = set()
    for key in keys:
        texts |= {key, key.removeprefix("maskreg/"), key.rsplit("/", 1)[-1]}
        if match := re.search(r"artifacts/sha256/(([0-9a-f]{12})[0-9a-f]{52})/(.*)", key):
            texts |= {match[2], match[3], *names.get(f"sha256:{match[1]}", ())}
        if match := re.match(r"(?:maskreg/)?refs/(.*)/[^/]*", key):
            project, name, tag = match[1].split("/")
            texts |= {f"{name}:{tag}", f"{project}/{name}", *([name] if tag == "latest" else [])}
        if kind_of(key) == "identity":
            texts.add("another registry than before")
        if kind_of(key) == "refs":
            texts |= {" entries, and ", " tags, and "}
        if kind_of(key) == "config":
            texts |= {"/config.toml, does not exist", "/config.toml, is empty"}
        if kind_of(key) == "catalog":
            texts |= {"catalog", "does not exist yet"}
        if kind_of(key) == "pipe":
            texts |= {"pipe", "record", "sha256:", "there is no"}
    return texts


def verdict(sound: Answer, damaged: Answer, names: set[str]) -> str:
    """``same``, ``noted`` or ``refused``; anything else is a fault, in words."""
    said, usual = damaged.said, sound.said
    text = said.err + (said.out if said.status else "")
    if said.status not in REFUSALS | {0} or "Traceback" in text:
        return f"crashed with exit {said.status}"
    if said.status == usual.status and _data(said) == _data(usual):
        return "same" if damaged.effect == sound.effect else "silently made something else"
    known = usual.err.splitlines()
    fresh = "\n".join(line for line in said.err.splitlines() if line not in known) + (said.out if said.status else "")
    named = any(name in fresh for name in names)
    if said.status == 0 and usual.status == 0:
        if damaged.effect != sound.effect:
            return "silently made something else"
        # A command about the registry itself says it among its results; one word alone can stand there by chance.
        listed = any(re.search(r"[/ ]", name) and name in said.out and name not in usual.out for name in names)
        return "noted" if named or listed else "silent: another answer"
    if said.status == 0:
        return "silent: exit 0"
    if damaged.effect not in (None, sound.effect):
        return "made something, and failed"
    return "refused" if named else "refused, and does not say what is damaged"


def _data(said: Said) -> str:
    """Standard output without what changes from run to run."""
    out = re.sub(r'\{"what": "disk".*?\}', "", said.out)
    if said.args[0] == "gc":
        # Former names of what would go; a back reference that is missing takes them along.
        out = re.sub(r'"names": \[[^]]*\]', "", out)
    # An empty configuration file is a valid one without remotes; what was pulled is compared byte by byte.
    out = re.sub(r'"(modified|remote)": "[^"]*"', "", out)
    return re.sub(r'"(fetched_\w+|reused_\w+|objects|bytes)": \d+', "", out)
