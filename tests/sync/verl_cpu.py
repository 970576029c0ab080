"""The CPU as a platform of verl, which imports this module where ``VERL_USE_EXTERNAL_MODULES`` names it."""

from __future__ import annotations

from types import SimpleNamespace

from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import PlatformRegistry


@PlatformRegistry.register("cpu")
class Cpu(PlatformCUDA):  # type: ignore[misc]
    """Its devices are what Ray was told to count as GPUs; weights go to vLLM through shared memory."""

    device_name = "cpu"
    device_module = SimpleNamespace(synchronize=lambda: None, empty_cache=lambda: None)

    def is_available(self) -> bool:
        return True

    def is_ipc_supported(self) -> bool:
        return False

    def set_allocator_settings(self, settings: str) -> None: ...
