"""What a checkpoint's folder holds, judged by names: of several formats in one folder, one is the checkpoint."""

from __future__ import annotations

import re

from maskreg.bucket import Location
from maskreg.checkpoint.files import names_in

ADAPTER_CONFIG = "adapter_config.json"
"""What a folder of PEFT's has beside an adapter's weights."""

ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
"""The weights of an adapter, the first that exists."""

RANK_FILE = re.compile(r"model_world_size_(?P<world>\d{1,6})_rank_(?P<rank>\d{1,6})\.pt")
"""The weights of one process of a run, as verl names them."""


TORCH_NAME = "pytorch_model.bin"
"""The weight file of a state dict that is not sharded."""

TORCH_INDEX_NAME = "pytorch_model.bin.index.json"
"""The file that says which tensor is in which shard."""

TORCH_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
"""How the names of state dicts end."""

# What trainers save beside the weights.
_BESIDE = re.compile(r"(training_args|scheduler|scaler|rng_state|random_states|extra_state|.*optim.*)([._-].*)?\.\w+")


def is_adapter(folder: Location) -> bool:
    """Whether a folder holds an adapter and no whole model."""
    names = names_in(folder)
    if ADAPTER_CONFIG not in names or not names & set(ADAPTER_WEIGHTS):
        return False
    return not _safetensors(names) - set(ADAPTER_WEIGHTS)


def is_safetensors(folder: Location) -> bool:
    """Whether a folder holds safetensors weights, or an index of some, of a model or of an adapter without a config."""
    return bool(_safetensors(names_in(folder))) and not is_adapter(folder)


def is_dcp(folder: Location) -> bool:
    """Whether a folder holds a distributed checkpoint of PyTorch, and no other weights to prefer."""
    names = names_in(folder)
    return any(name.endswith(".distcp") for name in names) and not _safetensors(names)


def is_fsdp(folder: Location) -> bool:
    """Whether a folder holds the weights of each process of a run, and no others to prefer."""
    names = names_in(folder)
    return any(map(RANK_FILE.fullmatch, names)) and not _safetensors(names) and not is_dcp(folder)


def is_torch(folder: Location) -> bool:
    """Whether a folder holds state dicts of ``torch.save``, and no other weights to prefer."""
    others = _safetensors(names_in(folder)) or is_adapter(folder) or is_dcp(folder) or is_fsdp(folder)
    return not others and bool(state_dicts(folder))


def state_dicts(folder: Location) -> list[Location]:
    """The one file or index of a state dict in a folder, or all that may be one."""
    names = names_in(folder)
    for name in (TORCH_NAME, TORCH_INDEX_NAME):
        if name in names:
            return [folder / name]
    return [folder / name for name in sorted(names) if name.endswith(TORCH_SUFFIXES) and not _BESIDE.fullmatch(name)]


def _safetensors(names: frozenset[str]) -> set[str]:
    return {name for name in names if ".safetensors" in name}
