"""Commands import what they need and no more; few need torch; none starts a program or goes to the network unasked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from maskreg.extras import install_command
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.e2e.running import Person, same_files

# Runs commands where torch is not installed until one fails, and notes which packages they have loaded at the end.
# What would leave the process, such as a compiler or a download, is refused.
WITHOUT_HELP = """
import json, subprocess, sys
sys.modules["torch"] = None
from maskreg_cli.main import main
PROGRAMS = "os.exec", "os.fork", "os.posix_spawn", "os.system", "subprocess.Popen"
NETWORK = "socket.connect", "socket.getaddrinfo"
def refuse(event, arguments):
    if event in PROGRAMS + NETWORK:
        raise PermissionError(f"{event}{arguments}")
sys.addaudithook(refuse)
status = 1
try:
    subprocess.run([sys.executable, "-V"])
except PermissionError:
    status = 0
for line in json.loads(sys.argv[2]):
    status = status or main(line)
loaded = sorted({name.partition(".")[0] for name, module in sys.modules.items() if module is not None})
with open(sys.argv[1], "w") as file:
    json.dump(loaded, file)
sys.exit(status)
"""

SLOW = {
    *("accelerate", "alembic", "asyncio", "boto3", "botocore", "huggingface_hub", "jinja2", "llvmlite", "matplotlib"),
    *("numba", "numcodecs", "numpy", "pandas", "psycopg", "msgspec", "scipy", "sqlalchemy", "tomlkit"),
    *("torch", "transformers", "triton", "zarr"),
}
"""Packages that take long to import."""

MANIFEST = {"msgspec"}
READING = MANIFEST | {"numpy"}
SEARCHING = {"asyncio", "sqlalchemy"}


Line = tuple[str | Path, ...]


class Done(NamedTuple):
    """A command that ran.

    Attributes:
        status: its exit code.
        out, err: what it printed.
        slow: which of the packages that take long it has loaded.
    """

    status: int
    out: str
    err: str
    slow: set[str]


class Alone(Person):
    """A user whose environment has no torch."""

    def do(self, *args: str | Path) -> Done:
        """Run a command."""
        return self.do_all([args])

    def do_all(self, lines: list[Line]) -> Done:
        """Run commands in one process, until one fails."""
        note = self.home / "loaded.json"
        note.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_HELP, note, json.dumps(lines, default=str)],
            env={**self.env, "PYTHONSAFEPATH": "1"},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return Done(done.returncode, done.stdout, done.stderr, set(json.loads(note.read_text())) & SLOW)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    names = ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight")
    tensors = {name: bf16((64, 96), seed) for seed, name in enumerate(names)}
    target = {name: moved(tensor, 0.4, seed=1) for name, tensor in tensors.items()}
    return make_checkpoint(folder / "source", tensors), make_checkpoint(folder / "target", target)


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory, pair: tuple[Path, Path]) -> Iterator[Alone]:
    """A user with an update and a baseline of it, and a remote that has the update."""
    home = tmp_path_factory.mktemp("ada")
    (home / "team").mkdir()
    yield prepared(Alone(home), pair)


def prepared(person: Alone, pair: tuple[Path, Path]) -> Alone:
    lines: list[Line] = [
        ("extract", *pair, "--name", "lab/opd:v1", "--family", "f", "--method", "opd", "--reversible"),
        ("baseline", "lab/opd:v1", "--kind", "random-global", "--seed", "1", "--name", "lab/random:v1"),
        ("remote", "add", "team", person.home / "team"),
        ("push", "lab/opd:v1"),
    ]
    done = person.do_all(lines)
    assert done.status == 0, done.err
    return person


MAY_LOAD: list[tuple[set[str], list[Line]]] = [
    (set(), [("--version",), ("config", "show", "--origin"), ("log", "lab/opd:v1")]),
    (READING, [("show", "lab/opd:v1"), ("pull", "lab/opd:v1"), ("verify", "lab/opd:v1")]),
    (READING | {"numcodecs"}, [("compare", "lab/opd:v1", "lab/random:v1")]),
    (MANIFEST, [("tag", "lab/opd:v1", "latest")]),
    (
        SEARCHING,
        [
            ("list",),
            ("list", "opd", "--method", "opd", "--density", "0.1..0.9", "--sort", "density", "--json"),
            ("doctor",),
        ],
    ),
    (SEARCHING | MANIFEST, [("gc", "--dry-run"), ("list", "--remote", "team")]),
]
"""What commands can load of the packages that take long, and the commands, which run in one process."""


@pytest.mark.parametrize(("allowed", "lines"), MAY_LOAD, ids=lambda value: value[0][0] if type(value) is list else "")
def test_commands_load_what_they_need(ada: Alone, allowed: set[str], lines: list[Line]) -> None:
    done = ada.do_all(lines)
    assert done.status == 0, done.err
    assert done.slow - allowed == set()


def test_apply_loads_no_catalog_but_the_file(ada: Alone, pair: tuple[Path, Path]) -> None:
    done = ada.do("apply", "lab/opd:v1", "--source", pair[0], "-o", "patched")
    assert done.status == 0, done.err
    assert same_files(ada.home / "patched", pair[1])
    assert done.slow - READING == set()


def test_everything_about_updates_works_in_an_empty_home_without_torch(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    (tmp_path / "team").mkdir()
    person = prepared(Alone(tmp_path), pair)
    lines: list[Line] = [
        ("list",),
        ("doctor",),
        ("show", "lab/opd:v1"),
        ("pull", "lab/opd:v1"),
        ("apply", "lab/opd:v1", "-o", "patched"),
        ("apply", "lab/opd:v1", "--revert", "--source", "patched", "-o", "back"),
        ("extract", *pair, "--name", "lab/mask", "--mask-only"),
        ("baseline", "lab/opd:v1", "--kind", "exponent-matched", "--source", pair[0]),
        ("baseline", "lab/opd:v1", "--kind", "rounding-null"),
        ("combine", "lab/opd:v1", "lab/mask", "--how", "and", "--name", "lab/both"),
        ("merge", "lab/opd:v1", "--method", "dare", "--set", "rescale=l1", "--name", "lab/less", "-o", "less"),
        ("convert", "lab/opd:v1", "--to", "slime", "-o", "step"),
        ("convert", "step", "--from", "slime", "--source", pair[0], "--name", "lab/step"),
        ("compare", "lab/opd:v1", "lab/mask", "--source", pair[0], "--by", "role", "--record"),
        ("tag", "lab/opd:v1", "stable"),
        ("rm", "lab/opd:v1", "--yes"),
        ("restore", "lab/opd:v1"),
        ("verify", "--all"),
        ("gc", "--dry-run"),
        ("db", "rebuild"),
    ]
    done = person.do_all(lines)
    assert done.status == 0, done.err
    assert same_files(tmp_path / "patched", pair[1])
    assert same_files(tmp_path / "back", pair[0])


NEEDS_TORCH: dict[str, Callable[[Path], Line]] = {
    "an analysis": lambda source: ("analyze", "lab/opd:v1", "--source", source),
    "a principal baseline": lambda source: ("baseline", "lab/opd:v1", "--kind", "principal", "--source", source),
    "training": lambda source: (
        *("retrain", "lab/opd:v1", "--recipe", "sft"),
        *("--data", source / "config.json", "-o", "r"),
    ),
    "device 'cuda'": lambda source: ("apply", "lab/opd:v1", "--source", source, "-o", "g", "--device", "cuda"),
}


@pytest.mark.parametrize("work", NEEDS_TORCH)
def test_what_needs_torch_says_how_to_install_it(
    ada: Alone, pair: tuple[Path, Path], work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", ada.env["PATH"])
    before = set(ada.home.iterdir())
    done = ada.do(*NEEDS_TORCH[work](pair[0]))
    assert done.status == 78
    extra = "train" if work == "training" else "torch"
    assert done.err.startswith(f"error: {work} ") and done.err.endswith(f"\n  next: {install_command(extra)}\n")
    assert set(ada.home.iterdir()) - {ada.home / "loaded.json"} == before - {ada.home / "loaded.json"}


def test_threads_of_numpys_blas_are_told_to_sleep_soon_before_numpy_is_loaded() -> None:
    code = (
        "import os, sys\n"
        "from maskreg_cli.main import main\n"
        "assert main(['--version']) == 0 and 'numpy' not in sys.modules\n"
        "print(os.environ['OPENBLAS_THREAD_TIMEOUT'])\n"
    )
    own = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    for environment, expected in ((own, "16"), (own | {"OPENBLAS_THREAD_TIMEOUT": "20"}, "20")):
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split()[-1] == expected
