"""Documentation holds: what its pages tell to type runs, and prints what they show; links and paths lead to files."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
import yaml
from _pytest.mark import ParameterSet
from maskreg_cli.main import cli
from maskreg_cli.output import Output

from maskreg.mask.packed import TensorMask, pack
from scripts import reference
from scripts.commands import pages
from scripts.notebooks import UPDATES
from tests.buckets import upload
from tests.pages import Block, blocks, commands, run
from tests.repository import ROOT, tracked
from tests.servers import free_ports

PAGES = [path for path in tracked() if path.suffix == ".md"]

MADE = {"docs/glossary.md"}

TYPED = [page for page in PAGES if (page.parts[0] == "docs" or str(page) == "README.md") and str(page) not in MADE]
"""Pages that tell people what to type, but not those that a script makes."""


WITH_TORCH = re.compile(
    r"^(?:import torch|from (?:torch|transformers|maskreg\.train)\b)|^\$ maskreg (?:retrain|analyze|convert .*nemo-rl)",
    re.MULTILINE,
)

EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])

ALONE = {"README.md", "docs/tutorial.md"}
"""Pages that begin with an empty registry."""


def parameters() -> Iterator[ParameterSet]:
    for page in TYPED:
        text = (ROOT / page).read_text()
        if any(not block.reason and block.kind in ("console", "python") for block in blocks(text)):
            yield pytest.param(page, id=str(page), marks=[pytest.mark.torch] if WITH_TORCH.search(text) else [])


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shipped checkpoints, and a registry that has two updates."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "demo").symlink_to(ROOT / "demo")
    text = f"```console\n{UPDATES}```\n"
    run(text, folder, home(folder))
    return folder


def home(folder: Path) -> dict[str, str]:
    return {"MASKREG_HOME": str(folder / "registry"), "MASKREG_CONFIG": str(folder / "config.toml")}


@pytest.mark.parametrize("page", list(parameters()))
def test_what_a_page_tells_to_type_runs(
    page: Path, workplace: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = (ROOT / page).read_text()
    folder = tmp_path / "clone"
    if str(page) in ALONE:
        folder.mkdir()
        (folder / "demo").symlink_to(ROOT / "demo")
    else:
        shutil.copytree(workplace, folder, symlinks=True)
    environment = home(folder) | {"HF_HUB_OFFLINE": "1"}
    if "$BUCKET" in text:
        server, postgres = request.getfixturevalue("s3_server"), request.getfixturevalue("postgres")
        environment |= {**server.env(), "BUCKET": server.new_bucket(), "S3_ENDPOINT": server.endpoint}
        # What a run has left there.
        upload(server, ROOT / "demo" / "target", environment["BUCKET"], "run/step-60")
        environment["CATALOG_URL"] = postgres.new_database()
    if "maskreg serve" in text:
        # Another server might have the port that the page names.
        (port,) = free_ports(1)
        text = text.replace("maskreg serve ", f"maskreg serve --port {port} ").replace("8470", str(port))
    run(text, folder, environment, request.getfixturevalue("programs"))
    if str(page) in ALONE:
        # What it leaves in a clone, besides what this test has put there, git does not offer to add.
        paths = [path for path in folder.iterdir() if not re.match("demo$|registry$|config.toml$|block", path.name)]
        left = [f"{path.name}/" if path.is_dir() else path.name for path in paths]
        ignored = subprocess.run(["git", "check-ignore", "--", *left], cwd=ROOT, capture_output=True, text=True)
        assert sorted(ignored.stdout.split()) == sorted(left)


@pytest.mark.parametrize("page", [page for page in TYPED if "```" in (ROOT / page).read_text()], ids=str)
def test_what_is_not_run_could_be(page: Path) -> None:
    for block in blocks((ROOT / page).read_text()):
        if block.kind == "sh" or (block.kind == "console" and block.reason):
            for line in _lines(block):
                _check_line(line)
        if block.kind == "yaml":
            for line in re.findall(r"^\s*- run: (.*)$", block.text, re.MULTILINE):
                _check_line(re.sub(r"\$\{\{.*?\}\}", "x", line))
            assert yaml.safe_load(block.text)


def _python_not_run() -> Iterator[ParameterSet]:
    for page in TYPED:
        for block in blocks((ROOT / page).read_text()):
            if block.kind == "python" and block.reason:
                marks = [pytest.mark.torch] if WITH_TORCH.search(block.text) else []
                yield pytest.param(block.text, id=str(page), marks=marks)


@pytest.mark.parametrize("text", list(_python_not_run()))
def test_what_python_that_is_not_run_imports_exists(text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and _is_installed(node.module):
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def _is_installed(module: str) -> bool:
    # What stands on vLLM is imported where vLLM is.
    top = "vllm" if module.startswith("maskreg.sync.vllm.") else module.partition(".")[0]
    return importlib.util.find_spec(top) is not None


def _lines(block: Block) -> list[str]:
    if block.kind == "console":
        return [step.command.replace("\\\n", " ") for step in commands(block)]
    return block.text.replace("\\\n", " ").splitlines()


PROGRAMS = {
    *("cd", "curl", "docker", "git", "kubectl", "mkdocs", "pg_dump", "pg_restore", "printf", "python", "python3"),
    *("vllm", "."),
}
"""Programs besides our own that a page can tell people to run."""


def _check_line(line: str) -> None:
    for part in re.split(r"\s(?:\||&&)\s", line):
        words = shlex.split(part, comments=True)
        if words[0] == "torchrun":
            words = words[words.index("maskreg") :]
        if words[0] == "maskreg":
            _check_command(words[1:])
        elif words[:2] == ["pip", "install"]:
            _check_install(words[2:])
        elif words[0].startswith("scripts/"):
            assert os.access(ROOT / words[0], os.X_OK), words[0]
        else:
            assert words[0] in PROGRAMS, line


def _check_command(words: list[str]) -> None:
    command: click.Command = cli
    context = click.Context(cli, info_name="maskreg", obj=Output())
    while isinstance(command, click.Group):
        child = command.get_command(context, words[0])
        assert child is not None, words
        command, words = child, words[1:]
    command.make_context(command.name, words, parent=context)


def _check_install(words: list[str]) -> None:
    for word in words:
        match = re.fullmatch(r"\.[\w/]*(?:\[([\w,]+)\])?", word)
        assert match, word
        assert set((match[1] or "").split(",")) - {""} <= EXTRAS


def test_nothing_is_installed_from_where_it_is_not() -> None:
    """There is no release yet: only `maskreg/extras.py` knows how it will be named."""
    absent = re.compile(r"pip\s+install\s+(?:-\S+\s+)*['\"]?maskreg|github\.com/maskreg")
    made = [path for path in tracked() if path.suffix in (".j2", ".js", ".py") and path.parts[0] != "tests"]
    assert [str(path) for path in [*PAGES, *made] if absent.search((ROOT / path).read_text())] == ["SECURITY.md"]


@cache
def made() -> dict[Path, str]:
    return {ROOT / "docs" / path: text for path, text in {"python.md": reference.page(), **pages()}.items()}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", (ROOT / page).read_text()):
        name, _, heading = target.partition("#")
        path = (ROOT / page.parent / name).resolve() if name else ROOT / page
        # Made when the site is built.
        text = "" if path.exists() else made().get(path, "")
        assert text or path.exists(), target
        if heading:
            text = text or path.read_text()
            titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            anchors = re.findall(r'id="([^"]+)"', text)
            assert heading in [*anchors, *(re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles)]


@pytest.mark.torch
def test_what_it_tells_verl_to_make_can_be_made() -> None:
    """As verl 0.9.1 makes optimizers; how they then train is tested beside the optimizers."""
    import torch

    text = (ROOT / "docs/how-to/verl.md").read_text()
    (block,) = [block for block in blocks(text) if block.kind == "yaml" and "optim" in block.text]
    optim = yaml.safe_load(block.text)["actor_rollout_ref"]["actor"]["optim"]
    options = optim["override_optimizer_config"]
    for name in ("optimizer_impl", "optimizer"):
        assert f"actor_rollout_ref.actor.optim.{name}={optim[name]}" in text
    assert ", ".join(f"{key}: {value}" for key, value in options.items()) in text.rpartition("```sh")[2]
    net = torch.nn.Linear(8, 8)
    mask = {name: TensorMask(name, tuple(p.shape), pack(p.numpy().ravel() > 0)) for name, p in net.state_dict().items()}
    kind = getattr(importlib.import_module(optim["optimizer_impl"]), optim["optimizer"])
    optimizer = kind(net.parameters(), lr=1e-6, betas=[0.9, 0.999], weight_decay=0.01, **{**options, "mask": mask})
    net(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    assert optimizer.grad_norm > 0
