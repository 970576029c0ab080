"""The backend ``maskreg`` of vLLM's weight transfer: a server's workers fetch what a run publishes, and commit it.

vLLM calls :func:`register` in each of its processes, through the entry point group ``vllm.general_plugins``.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

__all__ = ["BACKEND", "register"]

BACKEND = "maskreg"
"""The name in ``--weight-transfer-config '{"backend": "maskreg"}'``."""


def register() -> None:
    """Make the backend known to the factories that this vLLM has; does nothing where it has no weight transfer."""
    if find_spec("vllm.distributed.weight_transfer") is None:
        return
    module = import_module("vllm.distributed.weight_transfer.factory")
    for factory, where, name in (
        ("WeightTransferEngineFactory", "engine", "MaskregEngine"),
        ("WeightTransferTrainerFactory", "trainer", "MaskregTrainer"),
    ):
        # Older ones have no factory for trainers. Plugins can be loaded twice, which the factory refuses.
        with suppress(ValueError):
            if hasattr(module, factory):
                getattr(module, factory).register_engine(BACKEND, f"maskreg.sync.vllm.{where}", name)
