"""Run by torchrun in several processes: sharding as Accelerate does it, on a mask."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils.fsdp_utils import fsdp2_switch_optimizer_parameters
from torch.distributed.fsdp import fully_shard

from maskreg.train import MaskedAdamW, attach
from tests.live.models import qwen3
from tests.ranks import end_process, write_results
from tests.train.counting import changed, copies
from tests.train.optim.training import masked


def model_of() -> Any:
    torch.manual_seed(0)
    return qwen3(tie_word_embeddings=False).to(torch.bfloat16)


def sharded() -> dict[str, torch.Tensor]:
    """As Accelerate prepares it: the optimizer is made first, of parameters without names, which are then swapped."""
    model: Any = model_of()
    mask = masked(model)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    optimizer = MaskedAdamW(groups, lr=1e-2, mask=mask, gradients="packed")
    old = {name: p.data_ptr() for name, p in model.named_parameters()}
    for group in optimizer.param_groups:
        for number, p in enumerate(group["params"]):
            placeholder: Any = torch.empty(1, dtype=p.dtype)
            placeholder.data_ptr = p.data_ptr()
            group["params"][number] = placeholder
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    fsdp2_switch_optimizer_parameters(optimizer, {old[name]: p for name, p in model.named_parameters()})
    attachment = attach(model, optimizer)
    for step in range(2):
        ids = torch.randint(97, (2, 8), generator=torch.Generator().manual_seed(2 * step + dist.get_rank()))
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        model.zero_grad()
    attachment.check()
    return {name: p.full_tensor().detach() for name, p in model.named_parameters()}


def main(directory: Path) -> None:
    """Write what changed, as JSON."""
    source = model_of()
    mask, before = masked(source), copies(source)
    source.load_state_dict(sharded())
    write_results(directory, {"sharded": changed(source, before, mask)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    end_process()
