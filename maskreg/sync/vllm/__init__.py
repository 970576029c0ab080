"""The backend ``maskreg`` of vLLM's weight transfer: a server's workers fetch what a run publishes, and commit it.

vLLM calls :func:`register` in each of its processes, through the entry point group ``vllm.general_plugins``.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

BACKEND = "maskreg"
"""The name in ``--weight-transfer-config '{"backend": "maskreg"}'``."""


def register() -> None:
    """Make the backend known to this vLLM; does nothing where it has no weight transfer."""
    if find_spec("vllm.distributed.weight_transfer") is None:
        return
    factory = import_module("vllm.distributed.weight_transfer.factory").WeightTransferEngineFactory
    # Plugins may be loaded twice, which the factory refuses.
    with suppress(ValueError):
        factory.register_engine(BACKEND, "maskreg.sync.vllm.engine", "MaskregEngine")
