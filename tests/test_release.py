"""What a release needs: one version, a changelog that names it, and valid files to build, cite and check with."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from maskreg import __version__
from scripts import release_check
from tests.repository import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_changelog_leads_to_the_version() -> None:
    assert release_check.version() == __version__
    assert list(release_check.problems(__version__, (ROOT / "CHANGELOG.md").read_text())) == []


def test_what_development_needs_is_pinned_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned: dict[str, list[str]] = {}
    for line in (ROOT / "scripts/constraints.txt").read_text().splitlines():
        pin = Requirement(line)
        pinned.setdefault(canonicalize_name(pin.name), []).append(str(pin.specifier).removeprefix("=="))
    extras = [project["dependencies"], *project["optional-dependencies"].values()]
    needed = [Requirement(line) for lines in extras for line in lines]
    lacking = [
        str(need)
        for need in needed
        # triton is the one that torch's build needs; vLLM's CPU build is in scripts/vllm.txt
        if need.name not in ("maskreg", "triton", "vllm")
        and not any(need.specifier.contains(version) for version in pinned.get(canonicalize_name(need.name), []))
    ]
    assert lacking == [], "run scripts/lock"


def test_workflows_are_valid() -> None:
    command: list[str | Path] = [Path(sys.executable).with_name("actionlint"), "-shellcheck=", "-pyflakes=", *WORKFLOWS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_use_actions_by_commit(path: Path) -> None:
    uses = re.findall(r"uses: (?!\./)(.*)", path.read_text())
    assert [line for line in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_only_publishing_may_write() -> None:
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    assert release["permissions"] == {"contents": "read"}
    assert release["jobs"]["publish"]["needs"] == ["test", "build", "wheels"]
    rights = {name: job["permissions"] for name, job in release["jobs"].items() if "permissions" in job}
    assert rights == {"publish": {"id-token": "write"}}
