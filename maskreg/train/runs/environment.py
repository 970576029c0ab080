"""What the numbers of a run depend on beside its setup: processes, device and libraries."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch

from maskreg.train.runs.folder import RunPaths
from maskreg.train.runs.parallel import World
from maskreg.version import __version__

_LIBRARIES = ("torch", "transformers", "numpy")


def environment_of(world: World, paths: RunPaths) -> dict[str, Any]:
    """The environment of the steps that these processes take, as a JSON object.

    Two runs with one setup have the same bits in the same environment, and may differ in their last bits in another:
    sums over processes, and the kernels of a device or of a library's version, round in another order.
    """
    on_gpu = world.device.type == "cuda"
    device = torch.cuda.get_device_name(world.device) if on_gpu else f"cpu {torch.backends.cpu.get_cpu_capability()}"
    return {
        "processes": world.size,
        **({"parallel": paths.parallel} if world.size > 1 else {}),
        "device": device,
        **({} if on_gpu else {"threads": torch.get_num_threads()}),
        "versions": {"maskreg": __version__, **{name: version(name) for name in _LIBRARIES}},
    }
