"""Optional packages: an import that fails because one is missing says what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from maskreg.errors import ConfigError

EXTRAS = {
    "accelerate": "train",
    "cryptography": "sign",
    "fastapi": "server",
    "huggingface_hub": "hub",
    "jinja2": "report",
    "markdown_it": "server",
    "matplotlib": "report",
    "nh3": "server",
    "obstore": "cloud",
    "opentelemetry": "telemetry",
    "PIL": "report",
    "prometheus_client": "server",
    "ray": "ray",
    "safetensors": "train",
    "torch": "torch",
    "transformers": "train",
    "uvicorn": "server",
    "yaml": "yaml",
}
"""The extra of this package that brings each optional package."""


@contextmanager
def requiring(work: str, extra: str = "") -> Iterator[None]:
    """Import what some work needs; where an optional package is missing, say which extra brings it.

    Args:
        work: begins the message, as in "an analysis needs the package torch, which is not installed".
        extra: the one that brings all the work needs; by default the one that brings the missing package.

    Raises:
        ConfigError: an optional package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise ConfigError(
            f"{work} needs the package {package}, which is not installed",
            hint=f"pip install 'maskreg[{extra or EXTRAS[package]}]'",
        ) from error
