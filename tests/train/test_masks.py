from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

import maskreg
from maskreg.artifact.reader import Artifact
from maskreg.errors import NotFoundError, UsageError, WrongCheckpointError
from maskreg.mask.packed import TensorMask, pack
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from maskreg.train import MaskedAdamW, attach, mask_of
from tests.checkpoints import bf16, moved
from tests.flow.making import extracted, opened

NAMES = {"0.weight": (24, 16), "2.weight": (5, 24)}


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 24, bias=False), torch.nn.GELU(), torch.nn.Linear(24, 5, bias=False)
    return torch.nn.Sequential(*layers).bfloat16()


def published(home: Path, folder: Path) -> Artifact:
    """An artifact called ``toy`` in a registry."""
    before = {name: bf16(shape, i) for i, (name, shape) in enumerate(NAMES.items())}
    after = {name: moved(tensor, 0.4, i) for i, (name, tensor) in enumerate(before.items())}
    made = extracted(home, *opened(folder, before, after))
    with Registry.local(Settings.load(home=str(home))) as there:
        there.publish(Ref.parse("toy"), made.digest, card=Card())
    return made


def trained(mask: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Weights before and after two steps."""
    model = net()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = MaskedAdamW(model.named_parameters(), 0.1, mask=mask)
    for _ in range(2):
        model(torch.ones(3, 16, dtype=torch.bfloat16)).float().square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return before, [p.detach() for p in model.parameters()]


def test_names_artifacts_and_masks_mean_the_same(tmp_path: Path) -> None:
    made = published(Settings.load().home, tmp_path)
    _, by_name = trained("toy")
    for mask in (f"toy@{made.digest}", made, made.mask, maskreg.pull("toy")):
        before, after = trained(mask)
        assert all(torch.equal(one, other) for one, other in zip(by_name, after, strict=True))
        for was, now, name in zip(before, after, NAMES, strict=True):
            inside = torch.from_numpy(made.mask[name].to_bool())
            assert torch.equal(was[~inside], now[~inside])
            assert not torch.equal(was[inside], now[inside])


def test_what_is_not_here_is_pulled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = published(tmp_path / "remote", tmp_path)
    with pytest.raises(NotFoundError):
        mask_of("toy")
    config = tmp_path / "config.toml"
    config.write_text(f'[remotes.team]\nurl = "{(tmp_path / "remote").as_uri()}"\n')
    monkeypatch.setenv("MASKREG_CONFIG", str(config))
    found = mask_of("toy")
    assert {name: one.nnz for name, one in found.items()} == {name: one.nnz for name, one in made.mask.items()}
    monkeypatch.setenv("MASKREG_OFFLINE", "1")
    assert mask_of("toy").keys() == found.keys()


def test_what_is_no_mask() -> None:
    with pytest.raises(UsageError, match=r"^int "):
        mask_of(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        mask_of({})
    with pytest.raises(UsageError, match=" 0 ") as caught:
        mask_of({0: torch.ones(3, dtype=torch.bool)})  # type: ignore[arg-type]
    assert "named_parameters" in caught.value.hint


def booleans(density: float = 0.4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {name: torch.rand(shape, generator=generator) < density for name, shape in NAMES.items()}


@pytest.mark.parametrize(
    "kind",
    [
        dict,
        MappingProxyType,
        lambda mask: {name: tensor.numpy() for name, tensor in mask.items()},
        lambda mask: {name: tensor.T.contiguous().T for name, tensor in mask.items()},
        lambda mask: {name: TensorMask(name, tuple(t.shape), pack(t.numpy())) for name, t in mask.items()},
    ],
    ids=["tensors", "other mapping", "arrays", "not contiguous", "packed"],
)
def test_booleans_by_name_are_a_mask(kind: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    mask = booleans()
    for before, after, inside in zip(*trained(kind(mask)), mask.values(), strict=True):
        assert torch.equal(before[~inside], after[~inside])
        assert not torch.equal(before[inside], after[inside])


def test_booleans_confine_any_optimizer_and_replace_a_mask() -> None:
    model, mask = net().float(), booleans()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    attachment = attach(model, optimizer, mask)
    model(torch.ones(3, 16)).square().sum().backward()
    optimizer.step()
    attachment.check()
    for was, now, inside in zip(before, model.parameters(), mask.values(), strict=True):
        assert bool((was != now)[inside].any())
    masked = MaskedAdamW(model.named_parameters(), mask=booleans(1.0))
    assert [item.bits.nnz for item in masked.bind(model, mask)] == [int(inside.sum()) for inside in mask.values()]


def test_later_changes_of_booleans_change_no_mask() -> None:
    given = booleans()
    mask = mask_of(given)
    expected = {name: int(tensor.sum()) for name, tensor in given.items()}
    for tensor in given.values():
        tensor.fill_(True)
    assert {name: one.nnz for name, one in mask.items()} == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.to(torch.uint8), r"the mask of 0\.weight is torch\.uint8, not booleans"),
        (lambda t: t.numpy().astype("f4"), r"the mask of 0\.weight is float32, not booleans"),
        (lambda t: t.tolist(), r"the mask of 0\.weight is a list, not booleans"),
        (lambda t: t.to("meta"), r"the mask of 0\.weight has no values or is sparse"),
        (lambda t: t.to_sparse(), r"the mask of 0\.weight has no values or is sparse"),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_values_that_are_no_booleans(change: Callable[[torch.Tensor], Any], words: str, lazy: bool) -> None:
    mask = {name: change(tensor) for name, tensor in booleans().items()}
    with pytest.raises(UsageError, match=words):
        trained(MappingProxyType(mask) if lazy else mask)


def test_booleans_of_another_model() -> None:
    mask = booleans()
    with pytest.raises(WrongCheckpointError, match=r"0\.weight: .*\[24, 16\] .*\[16, 24\]"):
        trained({name: tensor.T for name, tensor in mask.items()})
    with pytest.raises(WrongCheckpointError, match=r"a\.0\.weight: .*a\.2\.weight"):
        trained({f"a.{name}": tensor for name, tensor in mask.items()})
    more = {f"{n}.more": torch.ones(2, dtype=torch.bool) for n in range(5)}
    with pytest.raises(WrongCheckpointError, match=r"1\.more, 2\.more, 3\.more and 1 more"):
        trained({**mask, **more})


def test_a_mask_without_coordinates_is_refused() -> None:
    with pytest.raises(UsageError, match=r" 0\.weight, 2\.weight,"):
        trained(booleans(0.0))
    # Any coordinate is enough; a tensor can have none.
    mask = booleans(0.0)
    mask["2.weight"][1, 2] = True
    before, after = trained(mask)
    assert [int((was != now).sum()) for was, now in zip(before, after, strict=True)] == [0, 1]


def test_a_mask_without_coordinates_of_what_is_trained_is_refused() -> None:
    model, mask = net().float(), {**booleans(), "2.weight": torch.zeros(5, 24, dtype=torch.bool)}
    optimizer = torch.optim.AdamW(model[2].parameters(), 0.1)  # type: ignore[index]
    with pytest.raises(UsageError, match=r" 2\.weight,"):
        attach(model, optimizer, mask)


def test_optimizers_need_neither_a_registry_nor_a_model_library() -> None:
    heavy = {"transformers", "zarr", "boto3", "sqlalchemy", "msgspec"}
    script = f"import sys, maskreg.train; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
