from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import maskreg
from maskreg.artifact.reader import Artifact
from maskreg.errors import NotFoundError, UsageError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from maskreg.train import MaskedAdamW, MaskedSGD, mask_of
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
    with Registry.local(Settings.load(flags={"home": str(home)})) as there:
        there.publish(Ref.parse("toy"), made.digest, card=Card())
    return made


def trained(mask: Any, kind: Any = MaskedAdamW) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Weights before and after two steps."""
    model = net()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = kind(model.named_parameters(), 0.1, mask=mask)
    for _ in range(2):
        model(torch.ones(3, 16, dtype=torch.bfloat16)).float().square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return before, [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("kind", [MaskedAdamW, MaskedSGD])
def test_names_artifacts_and_masks_mean_the_same(kind: type[Any], tmp_path: Path) -> None:
    made = published(Settings.load().home, tmp_path)
    _, by_name = trained("toy", kind)
    for mask in (f"toy@{made.digest}", made, made.mask, maskreg.pull("toy")):
        before, after = trained(mask, kind)
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
    with pytest.raises(UsageError, match="int is no mask"):
        mask_of(3)  # type: ignore[arg-type]


def test_optimizers_need_neither_a_registry_nor_a_model_library() -> None:
    heavy = {"transformers", "zarr", "boto3", "sqlalchemy", "pydantic"}
    script = f"import sys, maskreg.train; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
