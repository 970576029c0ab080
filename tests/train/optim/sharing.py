"""What must hold in every process of several; each is called by name in all of them at once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save as save_parts
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn.parallel import DistributedDataParallel

from maskreg.errors import DataError, UsageError
from maskreg.live.shards import layout_of, local_of
from maskreg.train import Masked, MaskedAdamW, changed
from maskreg.train.optim import MaskedOptimizer
from maskreg.train.optim.gradients import PackedGradient
from tests.train.optim.quantizing import QuantizedMomentum
from tests.train.optim.world import (  # fmt: skip
    ADAMW,
    SAVED_AT,
    Net,
    alone,
    as_alone,
    frozen_kept,
    make,
    masks,
    mesh,
    put_gradients,
    same,
    same_state,
    sharded,
    train,
    weights,
)

FULL = StateDictOptions(full_state_dict=True)
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def shards_train_as_one(folder: Path) -> None:
    """FSDP2, some parameters over their second dimension: weights, norms and state equal one process's."""
    for dtype, moments in product((torch.bfloat16, torch.float32), ("fp32", "bf16")):
        net = sharded(dtype)
        optimizer = make(net, moments=moments)
        train(net, optimizer)
        as_alone(net, optimizer, dtype, moments=moments)


def changes_applied_to_a_stale_copy(folder: Path) -> None:
    """What has changed since the last call gives the local weights bit for bit; first of all of the mask, then less."""
    for net in (Net(), sharded(), sharded(torch.float32)):
        stale = {name: local_of(p.detach()).clone() for name, p in net.named_parameters()}
        optimizer = make(net)
        counts = []
        for step in range(20):
            train(net, optimizer, step, step + 1)
            if step % 5 == 3:
                continue
            counts.append(0)
            for name, positions, bits in changed(optimizer):
                flat = stale[name].reshape(-1).view(torch.int16 if bits.itemsize == 2 else torch.int32)
                flat[torch.from_numpy(positions)] = torch.from_numpy(bits.view(f"i{bits.itemsize}"))
                counts[-1] += positions.size
            same({name: local_of(p.detach()) for name, p in net.named_parameters()}, stale)
        nnz = sum(item.bits.nnz for item in optimizer.bind(net))
        assert counts[0] == nnz
        assert 0 < counts[-1] < nnz or stale["one"].dtype == torch.float32
    with pytest.raises(UsageError):
        changed(torch.optim.SGD([torch.ones(1)], lr=1.0))


def uneven_shards_of_later_dimensions(folder: Path) -> None:
    """DTensors made by hand, sharded over each dimension, parameters of one optimizer on two meshes."""
    world = dist.get_world_size()
    one, two = mesh(world), mesh(1, world)
    for dim in range(3):
        net = Net()
        for number, (name, p) in enumerate(list(net.named_parameters())):
            placement = Shard(min(dim, p.dim() - 1))
            places = (one, [placement]) if number % 2 else (two, [Replicate(), placement])
            net.register_parameter(name, torch.nn.Parameter(distribute_tensor(p.detach(), *places)))
        optimizer = make(net)
        train(net, optimizer)
        as_alone(net, optimizer)
        for own, (name, p) in zip(optimizer.state.values(), net.named_parameters(), strict=True):
            here = torch.from_numpy(masks()[name].to_bool())
            inside = distribute_tensor(here, p.device_mesh, p.placements).to_local()  # type: ignore[attr-defined]
            assert own["exp_avg"].shape == (int(inside.sum()),)
        again = make(net)
        again.load_state_dict(optimizer.state_dict())
        train(net, again, 0, 0)
        again.bind(net)
        for mine, theirs in zip(again.state.values(), optimizer.state.values(), strict=True):
            same(mine, theirs)


def real_gradients_dense_and_packed(folder: Path) -> None:
    """Post-accumulate hooks see reduced shards: both ways give the same bits, also of accumulated gradients."""
    in_fp32 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    settings = [(torch.float32, MixedPrecisionPolicy()), (torch.float32, in_fp32), (torch.bfloat16, in_fp32)]
    for (dtype, policy), micro in product(settings, (1, 2)):
        found: list[dict[str, torch.Tensor]] = []
        for kind, kept in (("dense", torch.Tensor), ("packed", PackedGradient)):
            net = sharded(dtype, mp_policy=policy)
            optimizer = make(net, gradients=kind, max_grad_norm=0.1)
            for step in range(3):
                for part in range(micro):
                    # Dense gradients of bf16, which are added up after they are reduced, have other bits.
                    often = step == 1 and dtype == torch.float32
                    net.set_requires_gradient_sync(often or part == micro - 1)  # type: ignore[operator]
                    net(torch.tensor(1.0 + step + part + dist.get_rank())).backward()
                assert all(type(p.grad._local_tensor) is kept for p in net.parameters())  # type: ignore[union-attr]
                optimizer.step()
                optimizer.zero_grad()
            frozen_kept(net, dtype)
            found.append(weights(net))
        same(found[1], found[0])


def replicas_that_a_later_hook_reduces(folder: Path) -> None:
    """As transformers does for norms under tensor parallelism, whose gradients are parts of a sum."""
    found = []
    for kind in ("dense", "packed"):
        net = Net(torch.float32)
        optimizer = make(net, gradients=kind)
        optimizer.bind(net)
        for p in net.parameters():
            p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))  # type: ignore[no-untyped-call]
        for step in range(2):
            net(torch.tensor(1.0 + step + dist.get_rank())).backward()
            if kind == "packed":
                with pytest.raises(UsageError):
                    dist.broadcast(next(net.parameters()).grad, 0)  # type: ignore[arg-type]
            optimizer.step()
            optimizer.zero_grad()
        found.append(weights(net))
    same(found[1], found[0])


def parameters_that_sharding_replaced(folder: Path) -> None:
    """An optimizer that is older than the shards."""
    # The loop binds it: parameters give way to others of the same names, at once or in the middle of a run, where state
    # is cut anew; or a framework replaces them in the groups.
    for begun, way in ((0, "bound"), (0, "replaced"), (SAVED_AT, "bound")):
        net = Net()
        optimizer = make(net)
        train(net, optimizer, 0, begun)
        fully_shard(net)
        if way == "bound":
            optimizer.bind(net)
        else:
            optimizer.param_groups[0]["params"] = list(net.parameters())
        train(net, optimizer, begun)
        same(weights(net), weights(alone()[0]))


def names_from_the_first_forward(folder: Path) -> None:
    """Parameters without names, as verl passes them; another model runs first, and this one without gradients."""
    net = sharded()
    optimizer = MaskedAdamW(net.parameters(), mask=masks(), max_grad_norm=1.0, **ADAMW)
    Net()(torch.ones(()))
    put_gradients(net, 1)
    with pytest.raises(UsageError, check=lambda error: "optimizer.bind(" in error.hint):
        optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        net(torch.ones(()))
    net(torch.ones(())).backward()
    optimizer.zero_grad()
    train(net, optimizer)
    same(weights(net), weights(alone()[0]))


def replicas_of_ddp(folder: Path) -> None:
    """DDP: names begin with ``module.``, gradients are averages already; what takes them earlier is refused."""
    for seen in ("named", "unnamed"):
        net = DistributedDataParallel(Net(torch.float32))
        given: Any = net.named_parameters() if seen == "named" else net.parameters()
        optimizer = MaskedAdamW(given, mask=masks(), max_grad_norm=1.0, **ADAMW)
        for _ in range(2):
            net(torch.tensor(1.0 + dist.get_rank())).backward()
            optimizer.step()
            optimizer.zero_grad()
        frozen_kept(net, torch.float32)
        first = weights(net)
        for one in first.values():
            ours = one.clone()
            dist.broadcast(ours, 0)
            assert torch.equal(ours, one)
        for state in optimizer.state_dict()["state"].values():
            assert all(type(value) is torch.Tensor for value in state.values())
    net = DistributedDataParallel(Net())
    optimizer = MaskedAdamW(net.named_parameters(), mask=masks(), gradients="packed", **ADAMW)
    for _ in range(2):
        with pytest.raises(UsageError, match="DistributedDataParallel"):
            net(torch.ones(()))
    del optimizer
    gc.collect()
    net(torch.ones(()))


def other_layouts_are_refused_by_name(folder: Path) -> None:
    world = dist.get_world_size()
    full = torch.zeros(8, 8)
    over = mesh(world)
    split = distribute_tensor(full, over, [Shard(0)])
    for placement, words in (
        (Partial(), r"^w .*Partial\(sum\) "),
        (_StridedShard(0, split_factor=2), r"^w .*_StridedShard\(dim=0, sf=2\)"),
    ):
        wrong = type(split).from_local(split.to_local(), over, [placement], run_check=False)
        with pytest.raises(UsageError, match=words):
            layout_of("w", wrong)
    if world == 4:
        deep = distribute_tensor(torch.zeros(8, 8, 8), mesh(2, 2), [Shard(1), Shard(2)])
        with pytest.raises(UsageError, match=r"^w .*Shard\(dim=1\), Shard\(dim=2\) .*\b2"):
            layout_of("w", deep)


def tensor_parallel() -> Net:
    """FSDP2 over it: rows, columns, and rows of rows."""
    net, over = Net(), mesh(2, 2)
    for number, (name, p) in enumerate(list(net.named_parameters())):
        if p.dim() > 1:
            placed = distribute_tensor(p.detach(), over["shard"], [Shard(number % 2)])
            net.register_parameter(name, torch.nn.Parameter(placed))
    fully_shard(net, mesh=over["replicate"])
    return net


def expert_parallel(others: str) -> Net:
    """Stacked experts over a mesh of their own."""
    net, world = Net(), dist.get_world_size()
    placed = distribute_tensor(net.get_parameter("cube").detach(), mesh(world // 2, 2), [Shard(1), Shard(0)])
    net.register_parameter("cube", torch.nn.Parameter(placed))
    if others == "sharded":
        fully_shard(net, mesh=mesh(world), ignored_params={net.get_parameter("cube")})
    return net


def each_layout_trains_as_one(folder: Path) -> None:
    """To the bit, saved and loaded too. Of HSDP, replicas count once in the norm."""
    world = dist.get_world_size()
    makers: list[Callable[[], Net]] = [tensor_parallel] if world == 4 else []
    makers += [partial(sharded, mesh=mesh(*shape)) for shape in ((world, 1), (1, world), (2, world // 2))]
    makers += [partial(expert_parallel, others) for others in ("replicated", "sharded")]
    for number, maker in enumerate(makers):
        (net, optimizer), (again, other) = ((net, make(net)) for net in (maker(), maker()))
        train(net, optimizer)
        as_alone(net, optimizer)
        save_parts({"optim": get_optimizer_state_dict(net, optimizer)}, checkpoint_id=folder / f"{world}-{number}")
        state: dict[str, Any] = {"optim": get_optimizer_state_dict(again, other)}
        load(state, checkpoint_id=folder / f"{world}-{number}")
        set_optimizer_state_dict(again, other, state["optim"])
        same_state(other.state_dict()["state"], alone()[1].state_dict()["state"])


def gradients_in_another_layout(folder: Path) -> None:
    """A gradient that is still a sum of parts, or whole in every process, is brought to the parameter's layout."""
    net, other = sharded(), sharded()
    one, two = make(net), make(other)
    put_gradients(net, 5)
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        q.grad = p.grad.redistribute(placements=[Replicate()])  # type: ignore[union-attr]
    one.step()
    two.step()
    same(weights(other), weights(net))


# -- saved by two processes, resumed by one, two and three


def save(folder: Path) -> None:
    """Half a run, saved in every way that there is."""
    net = sharded()
    optimizer = make(net)
    train(net, optimizer, 0, SAVED_AT)
    full: dict[str, Any] = get_optimizer_state_dict(net, optimizer, options=FULL)
    full_weights = weights(net)
    rank = dist.get_rank()
    if rank == 0:
        torch.save(full, folder / "full.pt")
        torch.save(full_weights, folder / "weights.pt")
    save_parts({"optim": get_optimizer_state_dict(net, optimizer)}, checkpoint_id=folder / "parts")
    save_parts({"optim": get_optimizer_state_dict(net, optimizer, options=FLAT)}, checkpoint_id=folder / "flat")
    torch.save(optimizer.state_dict(), folder / f"rank-{rank}-of-{dist.get_world_size()}.pt")
    same_state(full["state"], alone(SAVED_AT)[1].state_dict()["state"])
    dist.barrier()


def _resumed(folder: Path, **options: Any) -> tuple[Net, MaskedAdamW]:
    net = sharded()
    kept = torch.load(folder / "weights.pt")
    for name, p in net.named_parameters():
        p.data.copy_(distribute_tensor(kept[name], p.device_mesh, p.placements))  # type: ignore[attr-defined]
    return net, make(net, **options)


def _goes_on(net: Net, optimizer: MaskedAdamW) -> None:
    assert optimizer.param_groups[0]["lr"] == ADAMW["lr"] / SAVED_AT
    train(net, optimizer, SAVED_AT)
    as_alone(net, optimizer)


def resume_from_a_whole_file(folder: Path) -> None:
    """torch.load, then set_optimizer_state_dict; or straight into an optimizer that has bound nothing yet."""
    net, optimizer = _resumed(folder)
    set_optimizer_state_dict(net, optimizer, torch.load(folder / "full.pt"), options=FULL)
    _goes_on(net, optimizer)
    net, optimizer = _resumed(folder)
    optimizer.load_state_dict(torch.load(folder / "full.pt"))
    assert not optimizer.state
    _goes_on(net, optimizer)


def resume_from_the_first_process(folder: Path) -> None:
    """Only one process reads the file."""
    net, optimizer = _resumed(folder)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    state = torch.load(folder / "full.pt") if dist.get_rank() == 0 else {}
    set_optimizer_state_dict(net, optimizer, state, options=options)
    _goes_on(net, optimizer)


def resume_from_parts(folder: Path) -> None:
    """torch.distributed.checkpoint, nested and flattened, with gradients of both kinds."""
    for kind in ("dense", "packed"):
        for name, options in (("parts", None), ("flat", FLAT)):
            net, optimizer = _resumed(folder, gradients=kind)
            state: Any = {"optim": get_optimizer_state_dict(net, optimizer, options=options)}
            same(weights(net), torch.load(folder / "weights.pt"))
            load(state, checkpoint_id=folder / name)
            set_optimizer_state_dict(net, optimizer, state["optim"], options=options)
            _goes_on(net, optimizer)


def resume_each_from_its_own_file(folder: Path) -> None:
    """As verl does: every process loads what it saved, before any mask is found."""
    net, _ = _resumed(folder)
    optimizer = MaskedAdamW(net.parameters(), mask=masks(), max_grad_norm=1.0, **ADAMW)
    file = folder / f"rank-{dist.get_rank()}-of-{dist.get_world_size()}.pt"
    optimizer.load_state_dict(torch.load(file, weights_only=False))
    with torch.no_grad():
        net(torch.ones(()))
    net.reshard()  # type: ignore[operator]
    for state in optimizer.state.values():
        for key, value in state.items():
            state[key] = value.to("cpu", non_blocking=True)
    _goes_on(net, optimizer)


def share_of_another_process(folder: Path) -> None:
    """What torch.save wrote in one process is refused in the others, and in another number of them."""
    net, optimizer = _resumed(folder)
    other = int(dist.get_world_size() > 1 and dist.get_rank() == 0)
    state = torch.load(folder / f"rank-{other}-of-2.pt", weights_only=False)
    optimizer.load_state_dict(state)
    with pytest.raises(DataError) as refused:
        optimizer.bind(net)
    assert "torch.distributed.checkpoint" in (refused.value.hint or "")


def quantized_state(folder: Path) -> None:
    """Resumed in as many processes to the bit; refused in another number of them."""
    net, again = sharded(), sharded()
    optimizers = [Masked(n.named_parameters(), QuantizedMomentum, mask=masks()) for n in (net, again)]
    for seed in range(2):
        put_gradients(net, seed)
        optimizers[0].step()
        optimizers[0].zero_grad()
    whole = get_optimizer_state_dict(net, optimizers[0], options=FULL)
    for p, q in zip(net.parameters(), again.parameters(), strict=True):
        q.data.copy_(p.data)
    set_optimizer_state_dict(again, optimizers[1], get_optimizer_state_dict(net, optimizers[0]))
    for each, optimizer in zip((net, again), optimizers, strict=True):
        put_gradients(each, 2)
        optimizer.step()
    same(weights(again), weights(net))
    alone = Net()
    with pytest.raises(DataError, match=rf" {dist.get_world_size()} .* 1 "):
        set_optimizer_state_dict(
            alone, Masked(alone.named_parameters(), QuantizedMomentum, mask=masks()), whole, options=FULL
        )


def other_optimizers(folder: Path) -> None:
    makers: list[Callable[..., MaskedOptimizer]] = [
        partial(Masked, optimizer=torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1),
        partial(Masked, optimizer=torch.optim.NAdam, lr=0.1, max_grad_norm=1.0),
    ]
    for maker in makers:
        nets = Net(), sharded()
        states = []
        for net in nets:
            optimizer = maker(net.named_parameters(), mask=masks())
            for seed in range(2):
                put_gradients(net, seed)
                optimizer.step()
                optimizer.zero_grad()
            states.append(optimizer.state_dict())
        same(weights(nets[1]), weights(nets[0]))
        same_state(states[1]["state"], states[0]["state"])
        again = maker(nets[1].named_parameters(), mask=masks())
        again.load_state_dict(states[1])
        put_gradients(nets[1], 2)
        again.step()
