"""Optional packages, and how this package was installed: hints name a pip command that works here."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from maskreg.errors import ConfigError

EXTRAS = {
    "accelerate": "train",
    "authlib": "server",
    "cachetools": "server",
    "cryptography": "sign",
    "datasets": "train",
    "fastapi": "server",
    "h11": "server",
    "httpx2": "server",
    "huggingface_hub": "hub",
    "jinja2": "report",
    "joserfc": "server",
    "markdown_it": "server",
    "markupsafe": "report",
    "matplotlib": "report",
    "nh3": "server",
    "obstore": "cloud",
    "opentelemetry": "telemetry",
    "PIL": "report",
    "prometheus_client": "server",
    "pydantic": "server",
    "safetensors": "train",
    "starlette": "server",
    "torch": "torch",
    "transformers": "train",
    "triton": "gpu",
    "trl": "train",
    "uvicorn": "server",
    "vllm": "vllm",
    "yaml": "train",
}
"""The extra of this package that brings each optional package."""


@contextmanager
def requiring(work: str, extra: str = "") -> Iterator[None]:
    """Import what some work needs; where an optional package is missing, say which extra brings it.

    ``work``: begins the message, as in "an analysis needs the package torch, which is not installed". ``extra``: the
    one that brings all the work needs; by default the one that brings the missing package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise ConfigError(
            f"{work} needs the package {package}, which is not installed",
            hint=install_command(extra or EXTRAS[package]),
        ) from error


def install_command(extra: str = "", *options: str) -> str:
    """The command that installs this package again from its origin: a folder, a URL, or a release.

    ``extra``: an extra to install too, such as ``report``.
    """
    import shutil

    brackets = f"[{extra}]" if extra else ""
    origin = _origin()
    url, editable = str(origin.get("url", "")), origin.get("dir_info", {}).get("editable")
    repository = origin.get("vcs_info", {})
    if url.startswith("file:") and not repository:
        what = _path(url) + brackets
    elif url:
        revision = f"@{wanted}" if (wanted := repository.get("requested_revision")) else ""
        what = f"maskreg{brackets} @ {'git+' if repository else ''}{url}{revision}"
    else:
        what = f"maskreg{brackets}"
    # Another environment's pip would install it where this one does not look.
    found = shutil.which("pip")
    pip = ["pip"] if found and Path(found).parent == Path(sys.executable).parent else [sys.executable, "-m", "pip"]
    return shlex.join([*pip, "install", *options, *(["-e"] if editable else []), what])


def upgrade_command() -> str:
    """The command that installs a later version."""
    origin = _origin()
    if "dir_info" in origin and (Path(_path(origin["url"])) / ".git").exists():
        return f"git -C {shlex.quote(_path(origin['url']))} pull && {install_command()}"
    return install_command("") if "dir_info" in origin else install_command("", "--upgrade")


@cache
def _origin() -> dict[str, Any]:
    """Where pip found this package (PEP 610); empty for a release."""
    # Imported late: only a hint needs it.
    from importlib.metadata import distributions

    # A build leaves an egg-info in a clone. It comes first for a process started there, and has no METADATA.
    installed = (found for found in distributions(name="maskreg") if found.read_text("METADATA"))
    text = next((found.read_text("direct_url.json") for found in installed), None)
    origin: dict[str, Any] = json.loads(text or "{}")
    return origin


def _path(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path)
