"""What is not installed is named with a command of pip that works where it is read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from maskreg.extras import EXTRAS, install_command
from tests.repository import ROOT

NOT_INSTALLED = """
import sys
sys.modules[sys.argv[1]] = None
from maskreg_cli.main import main
sys.exit(main(sys.argv[2:]))
"""

SOURCE, TARGET = str(ROOT / "demo/source"), str(ROOT / "demo/target")

EXTRACT = ("extract", SOURCE, TARGET, "--name", "lab/sums")

LINES: dict[str, tuple[str, ...]] = {
    "cryptography": ("key", "create", "lab", "--remote", "team"),
    "huggingface_hub": ("extract", SOURCE, "lab/model", "--name", "lab/sums"),
    "matplotlib": ("report", "lab/sums", "-o", "report.html"),
    "opentelemetry": ("serve", "--port", "0"),
    "trl": ("retrain", "lab/sums", "--recipe", "sft", "--data", "absent.jsonl", "-o", "run"),
}
"""A command that needs each of these packages."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with an update and a remote."""
    folder = tmp_path_factory.mktemp("home")
    for line in (EXTRACT, ("remote", "add", "team", "team")):
        done = run(folder, "no_such_package", *line)
        assert done.returncode == 0, done.stderr
    return folder


def run(folder: Path, missing: str, *line: str) -> subprocess.CompletedProcess[str]:
    """Run a command where a package is not installed."""
    own = {"MASKREG_HOME": str(folder / "registry"), "MASKREG_CONFIG": str(folder / "config.toml"), "HOME": str(folder)}
    own["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
    argv = [sys.executable, "-P", "-c", NOT_INSTALLED, missing, *line]
    return subprocess.run(argv, cwd=folder, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True)


@pytest.mark.parametrize("missing", LINES)
def test_a_command_says_which_extra_it_needs(missing: str, home: Path) -> None:
    done = run(home, missing, *LINES[missing])
    assert done.returncode == 78, done.stderr
    assert re.search(rf"\[({'|'.join({EXTRAS[missing], 'server', 'telemetry'})})\]", done.stderr)


@pytest.mark.parametrize(
    ("origin", "installed", "later"),
    [
        ({}, "'maskreg[report]'", "--upgrade maskreg"),
        ({"url": "file:///my%20work/clone", "dir_info": {}}, "'/my work/clone[report]'", "'/my work/clone'"),
        ({"url": "file:///clone", "dir_info": {"editable": True}}, "-e '/clone[report]'", "-e /clone"),
        (
            {"url": "file:///a/maskreg-1-py3-none-any.whl", "archive_info": {}},
            "'/a/maskreg-1-py3-none-any.whl[report]'",
            "--upgrade /a/maskreg-1-py3-none-any.whl",
        ),
        (
            {"url": "https://host/maskreg", "vcs_info": {"vcs": "git", "requested_revision": "main"}},
            "'maskreg[report] @ git+https://host/maskreg@main'",
            "--upgrade 'maskreg @ git+https://host/maskreg@main'",
        ),
    ],
    ids=["release", "folder", "editable", "wheel", "git"],
)
def test_a_hint_installs_from_where_it_came(
    origin: dict[str, object], installed: str, later: str, tmp_path: Path
) -> None:
    folder = tmp_path / "maskreg-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: maskreg\nVersion: 1\n")
    if origin:
        (folder / "direct_url.json").write_text(json.dumps(origin))
    code = "from maskreg import extras; print(extras.install_command('report')); print(extras.upgrade_command())"
    own = {"PYTHONPATH": str(tmp_path), "PATH": "/nowhere"}
    # A clone that was built, in which the command runs.
    clone = tmp_path / "clone"
    (clone / "maskreg.egg-info").mkdir(parents=True)
    (clone / "maskreg.egg-info/PKG-INFO").write_text("Metadata-Version: 2.1\nName: maskreg\nVersion: 1\n")
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=clone, env=own, capture_output=True, text=True, check=True)
    command, upgrade = done.stdout.splitlines()
    assert command == f"{sys.executable} -m pip install {installed}"
    assert upgrade.endswith(f"{sys.executable} -m pip install {later}")


def test_the_pip_of_the_environment_is_named_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert install_command().startswith("pip install ")
