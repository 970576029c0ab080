"""Documentation holds: the README's commands run in order and name every command; links and paths lead to files."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from maskreg_cli.main import COMMANDS

from maskreg.mask.packed import TensorMask, pack
from tests.repository import ROOT, tracked
from tests.servers import Postgres, S3Server

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_every_block_says_what_it_is() -> None:
    assert {kind for kind, _ in BLOCKS} <= {"sh", "console", "python", "yaml", "mermaid"}
    assert len(re.findall(r"^```", README, re.MULTILINE)) == 2 * len(BLOCKS)


def test_the_two_commands_exist_and_the_first_runs_the_demo() -> None:
    (block,) = [text for kind, text in BLOCKS if kind == "sh"]
    names = [line.split()[0] for line in block.splitlines()]
    assert names == ["scripts/demo", "scripts/test"]
    assert all(os.access(ROOT / name, os.X_OK) for name in names)
    assert (ROOT / ".ci/run").read_text().splitlines()[-1].strip().endswith("scripts/test")
    assert "-m scripts.journey" in (ROOT / "scripts/demo").read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"`{command}`" in README


PAGES = [path for path in tracked() if path.suffix == ".md"]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", (ROOT / page).read_text()):
        name, _, heading = target.partition("#")
        path = ROOT / page.parent / name if name else ROOT / page
        assert path.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            anchors = re.findall(r'id="([^"]+)"', path.read_text())
            assert heading in [*anchors, *(re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles)]


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    names = re.findall(r"`((?:maskreg|cli|tests|scripts|migrations|docs)/[\w./-]+)`", text)
    assert len(names) > 20
    assert [name for name in names if not (ROOT / name).exists()] == []


@pytest.mark.torch
def test_what_it_tells_verl_to_make_can_be_made() -> None:
    """As verl 0.9.1 makes optimizers; how they then train is tested beside the optimizers."""
    import torch

    (block,) = [text for kind, text in BLOCKS if kind == "yaml"]
    optim = yaml.safe_load(block)["actor_rollout_ref"]["actor"]["optim"]
    options = optim["override_optimizer_config"]
    net = torch.nn.Linear(8, 8)
    mask = {name: TensorMask(name, tuple(p.shape), pack(p.numpy().ravel() > 0)) for name, p in net.state_dict().items()}
    kind = getattr(importlib.import_module(optim["optimizer_impl"]), optim["optimizer"])
    optimizer = kind(net.parameters(), lr=1e-6, betas=[0.9, 0.999], weight_decay=0.01, **{**options, "mask": mask})
    net(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    assert optimizer.grad_norm > 0


@pytest.mark.torch
def test_every_line_runs(demo: tuple[Path, str], s3_server: S3Server, postgres: Postgres) -> None:
    """The blocks, one after another in one shell and folder; the Python block where it stands."""
    folder = demo[0].parent
    environment = {
        **os.environ,
        **s3_server.env(),
        "BUCKET": s3_server.new_bucket(),
        "S3_ENDPOINT": s3_server.endpoint,
        "CATALOG_URL": postgres.new_database(),
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    lines = ["set -e"]
    for number, (kind, text) in enumerate(BLOCKS):
        if kind == "console":
            lines += [line[2:] for line in text.splitlines() if line.startswith(("$ ", "> "))]
        if kind == "python":
            (folder / f"block{number}.py").write_text(text)
            lines.append(f"python block{number}.py")
    done = subprocess.run(["bash", "-c", "\n".join(lines)], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("identical") == README.count("\nidentical\n")
    assert "exit 65" in done.stdout
    output = done.stdout + done.stderr
    for promise in ("create-only writes are safe", "every tensor checked", "back with: maskreg restore", "schema 0005"):
        assert promise in output
