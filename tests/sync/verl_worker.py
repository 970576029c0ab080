"""verl's part of a worker of vLLM, on the CPU."""

from __future__ import annotations

from typing import Any, Self

import torch
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm import _custom_ops


class Extension(vLLMColocateWorkerExtension):  # type: ignore[misc]
    """Leaves linear weights where verl loads them, as on a GPU; oneDNN would keep packed copies alone."""

    model_runner: Any

    def __new__(cls, **options: Any) -> Self:
        _custom_ops._supports_onednn = False
        extension: Self = super().__new__(cls, **options)
        return extension

    def keep(self, path: str) -> None:
        """Write the weights in use to a file."""
        named = self.model_runner.model.named_parameters()
        torch.save({name: parameter.data for name, parameter in named}, path)
