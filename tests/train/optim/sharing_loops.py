"""What must hold in every process of several, of what loops do between steps: clip, discard, load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accelerate.utils.fsdp_utils import fsdp2_switch_optimizer_parameters
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard

from maskreg.errors import DataError
from maskreg.train import MaskedAdamW, attach
from tests.train.optim.test_packed import verl_s
from tests.train.optim.world import (  # fmt: skip
    ADAMW,
    Net,
    frozen_kept,
    make,
    masks,
    put_gradients,
    same,
    sharded,
    train,
    weights,
    whole,
)

FULL = StateDictOptions(full_state_dict=True)


def packed_shards_are_clipped_by_others(folder: Path) -> None:
    """The norm that verl's and PyTorch's clipping see covers all masked entries, and they scale all of them."""
    for clip in (verl_s, torch.nn.utils.clip_grad_norm_):
        found = []
        for net, own in ((sharded(torch.float32), None), (sharded(torch.float32), 0.1)):
            optimizer = make(net, gradients="packed", max_grad_norm=own)
            for step in range(2):
                net.set_requires_gradient_sync(step == 1)  # type: ignore[operator]
                net(torch.tensor(1.0 + step + dist.get_rank())).backward()
            norm = None if own else clip(net.parameters(), 0.1)
            optimizer.step()
            found.append((weights(net), optimizer.grad_norm if norm is None else norm))
        torch.testing.assert_close(whole(found[0][1]), whole(found[1][1]), rtol=1e-5, atol=0)  # type: ignore[arg-type]
        for name, one in found[0][0].items():
            torch.testing.assert_close(one, found[1][0][name], rtol=1e-6, atol=1e-6)
        net = sharded()
        before = weights(net)
        optimizer = make(net, gradients="packed", max_grad_norm=None)
        net(torch.tensor(torch.nan if dist.get_rank() == 0 else 1.0)).backward()
        assert whole(clip(net.parameters(), 0.1)).isnan()
        with pytest.raises(DataError, match=" nan"):
            optimizer.step()
        same(weights(net), before)
        net.zero_grad()
        optimizer.step()
        same(weights(net), before)


def sharded_as_accelerate_does(folder: Path) -> None:
    """The optimizer is made first, of parameters without names, which are then swapped by their addresses."""
    net = Net()
    optimizer = MaskedAdamW(net.parameters(), mask=masks(), gradients="packed", **ADAMW)
    old = {name: p.data_ptr() for name, p in net.named_parameters()}
    for number, p in enumerate(net.parameters()):
        placeholder: Any = torch.empty(1, dtype=p.dtype)
        placeholder.data_ptr = p.data_ptr()
        optimizer.param_groups[0]["params"][number] = placeholder
    fully_shard(net)
    fsdp2_switch_optimizer_parameters(optimizer, {old[name]: p for name, p in net.named_parameters()})
    attachment = attach(net, optimizer)
    for step in range(2):
        net(torch.tensor(1.0 + step + dist.get_rank())).backward()
        optimizer.step()
        net.zero_grad()
    attachment.check()
    frozen_kept(net)


def loaded_weights_stay(folder: Path) -> None:
    """What set_model_state_dict loads between two steps is not undone by the next, sharded or not."""
    other = weights(Net(seed=2))
    for kind in ("dense", "packed"):
        for net in (sharded(), Net()):
            optimizer = make(net, gradients=kind)
            train(net, optimizer, 0, 2)
            loaded: Any = dict(other)
            set_model_state_dict(net, loaded, options=FULL)
            same(weights(net), other)
            for group in optimizer.param_groups:
                group["lr"] = 0.0
            put_gradients(net, 3)
            optimizer.step()
            same(weights(net), other)
            optimizer.refresh()
            for item, state in zip(net.parameters(), optimizer.state_dict()["state"].values(), strict=True):
                inside = masks()[next(n for n, p in net.named_parameters() if p is item)].to_bool()
                assert torch.equal(whole(state["master"]), whole(item)[torch.from_numpy(inside)].float())
