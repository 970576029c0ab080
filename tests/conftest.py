"""What every test gets: servers on request, and a home of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.demo import demo
from tests.servers import other_s3_server, postgres, s3_server

__all__ = ["demo", "other_s3_server", "postgres", "s3_server"]

# How long a test takes says nothing here: machines are busy, and kernels are compiled when they are first called.
settings.register_profile("maskreg", deadline=None)
settings.load_profile("maskreg")

# A shell's background jobs ignore Ctrl-C and hand that down; the commands that tests start must not.
signal.signal(signal.SIGINT, signal.default_int_handler)

_FOREIGN = ("AWS_", "MASKREG_", "XDG_", "HF_", "HUGGINGFACE_", "PG", "BOTO_")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    # No test reads or writes what the person who runs it has: settings, caches, credentials.
    for name in list(os.environ):
        if name.startswith(_FOREIGN):
            monkeypatch.delenv(name)
    home: Path = tmp_path_factory.mktemp("home")
    places = {
        "HOME": home,
        "XDG_CONFIG_HOME": home / "config",
        "XDG_DATA_HOME": home / "data",
        "XDG_CACHE_HOME": home / "cache",
        "XDG_STATE_HOME": home / "state",
        "MASKREG_HOME": home / "maskreg",
        "MASKREG_CONFIG": home / "maskreg.toml",
        "HF_HOME": home / "huggingface",
        "AWS_CONFIG_FILE": home / "aws-config",
        "AWS_SHARED_CREDENTIALS_FILE": home / "aws-credentials",
    }
    for name, place in places.items():
        monkeypatch.setenv(name, str(place))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
