"""What Tab offers in a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from maskreg_cli.main import cli

from tests.cli.conftest import Run


def offered(*line: str) -> Sequence[str]:
    """What Tab offers for the last word."""
    completer = ShellComplete(cli, {}, "maskreg", "_MASKREG_COMPLETE")
    return [item.value for item in completer.get_completions(list(line[:-1]), line[-1])]


@pytest.mark.usefixtures("artifact")
def test_names_remotes_and_methods_are_offered(run: Run, tmp_path: Path) -> None:
    run("remote", "add", "team", tmp_path / "team")
    run("push", "toy-opd:v1", "--tag", "shared")
    assert offered("show", "toy") == ["toy-opd:v1"]
    assert offered("compare", "toy-opd:v1", "toy-opd:") == ["toy-opd:v1"]
    assert offered("show", "--remote", "team", "toy") == ["toy-opd:shared"]
    # What is not here yet.
    assert offered("pull", "") == ["toy-opd:shared"]
    assert offered("pull", "--remote", "t") == offered("remote", "rm", "") == ["team"]
    assert "ties" in offered("merge", "toy-opd:v1", "--method", "ti")
    assert offered("list", "--family", "") == ["toy"]
    assert offered("config", "set", "def") == ["default_remote"]
    assert offered("baseline", "toy-opd:v1", "--kind", "random-g") == ["random-global"]


def test_a_registry_that_cannot_be_read_offers_nothing(run: Run, tmp_path: Path) -> None:
    run("remote", "add", "gone", tmp_path / "gone")
    (tmp_path / "gone" / "maskreg.json").write_text("not a registry")
    assert offered("show", "--remote", "gone", "") == []


@pytest.mark.usefixtures("artifact")
def test_bash_completes_a_name_with_its_tag() -> None:
    folder = Path(sys.executable).parent
    script = (
        'eval "$(maskreg completion bash)"; COMP_WORDS=(maskreg show toy-opd:); COMP_CWORD=2; '
        '_maskreg_completion maskreg; echo "${COMPREPLY[@]}"; [[ $COMP_WORDBREAKS != *:* ]]'
    )
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["toy-opd:v1"]
