"""The runs, each one ``maskreg.retrain``; a finished one is kept in the results folder with its figures."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn.modules.module import register_module_forward_pre_hook

import maskreg
from maskreg.mask.baseline import KINDS
from scripts.reproduce.arms import (
    AS_SAFE,
    CONFIG,
    DIRECTIONS,
    EARLY,
    EARLY_SHARE,
    EXTERNAL,
    FAMILIES,
    FULL,
    OTHER_SEED,
    PAIRS,
    RANDOM_DIRECTIONS,
    RANK,
    SAFE,
    START_SEED,
    VISIBLE,
)
from scripts.reproduce.problems import measure, right, write_records

Record = dict[str, float]
_FIRST_STEPS = "first steps"


class Runs:
    """Runs of a results folder."""

    def __init__(self, checkpoints: Path, out: Path, *, quick: bool = False) -> None:
        """Create the folder with the training problems and a registry, or resume in it; ``quick`` runs take 2 steps."""
        self._checkpoints, self._out, self._quick = checkpoints.resolve(), out.resolve(), quick
        self._teacher = self._checkpoints / "teacher"
        self._out.mkdir(parents=True, exist_ok=True)
        write_records(self._out)
        os.environ["MASKREG_HOME"] = str(self._out / "registry")

    def arm(self, family: str, arm: str, seed: int) -> Record:
        """The figures of an arm with a training seed; runs that it depends on are made, too."""
        origin, control = FAMILIES[family].arms()[arm]
        if not origin:
            return self._train(family, FULL, PAIRS[seed] if arm == OTHER_SEED else seed, seed)
        if origin == DIRECTIONS:
            directions = self._directions(family, PAIRS[seed], seed if control == RANDOM_DIRECTIONS else None)
            with projecting(directions):
                figures = self._train(family, arm, seed, seed)
            ends = (self._folder(family, name, seed) / "model" for name in (arm, FULL))
            inside, full_inside = (_inside(self.start(family), end, directions) for end in ends)
            return {**figures, "inside": inside, "full_inside": full_inside}
        if control not in (VISIBLE, AS_SAFE):
            mask = partial(self._mask, family, origin, PAIRS[seed])
            return self._train(family, arm, seed, seed, mask=mask, control=control)
        if control == VISIBLE:
            density = self.arm(family, origin, seed)["visible"] / self.arm(family, FULL, seed)["visible"]
        else:
            density = self.arm(family, f"{origin}: {SAFE}", seed)["density"]
        return self._train(family, arm, seed, seed, mask=partial(self._random, family, density, seed))

    def start(self, family: str) -> Path:
        """The checkpoint that a family's runs start from."""
        if not FAMILIES[family].late:
            return self._checkpoints / "source"
        first = family.removeprefix("late ")
        self._train(first, FULL, START_SEED)
        return self._folder(first, FULL, START_SEED) / "model"

    def start_figures(self, family: str) -> Record:
        """The figures of that checkpoint."""
        return measure(self.start(family), self._teacher)

    def _mask(self, family: str, origin: str, seed: int) -> Any:
        """The artifact of a mask: what a full run with this seed changed, or another trainer's."""
        if origin == EXTERNAL:
            return maskreg.extract(self.start(family), self._checkpoints / "opd", "external", force=True)
        given, what = ("OPD", _FIRST_STEPS) if origin == EARLY else (origin.removesuffix(" mask"), FULL)
        self._train(given, what, seed)
        return maskreg.extract(self.start(given), self._folder(given, what, seed) / "model", "changed", force=True)

    def _random(self, family: str, density: float, seed: int) -> Any:
        """An artifact with a random mask: a part of one that has all coordinates, because its target differs in all."""
        other = self._out / "other"
        shutil.copytree(self.start(family), other, dirs_exist_ok=True)
        weights = load_file(other / "model.safetensors")
        for tensor in weights.values():
            tensor.view(torch.int16).bitwise_xor_(1)
        save_file(weights, other / "model.safetensors", {"format": "pt"})
        everything = maskreg.extract(self.start(family), other, "all", mask_only=True, force=True)
        return maskreg.baseline(everything, "subset", "random", density=min(density, 1.0), seed=seed, force=True)

    def _directions(self, family: str, seed: int, random: int | None) -> dict[str, torch.Tensor]:
        """For each matrix, the leading right singular vectors of what the first steps of a full run change in it.

        Orthonormal columns, fp32 ``[n, RANK]``; with a seed ``random``, the ones of a matrix of random numbers.
        """
        self._train(family, _FIRST_STEPS, seed)
        changes = _changes(self.start(family), self._folder(family, _FIRST_STEPS, seed) / "model")
        if random is not None:
            generator = torch.Generator().manual_seed(random)
            changes = {name: change.normal_(generator=generator) for name, change in changes.items()}
        return {
            name: torch.linalg.svd(change, full_matrices=False).Vh[:RANK].mT.float() for name, change in changes.items()
        }

    def _folder(self, family: str, arm: str, seed: int) -> Path:
        return self._out / f"{family}-{arm}-{seed}".replace(": ", "-").replace(", ", "-").replace(" ", "-")

    def _train(
        self, family: str, arm: str, seed: int, beside: int | None = None, *, mask: Any = None, control: str = ""
    ) -> Record:
        """Train and measure, unless that was done; ``beside`` is the seed of a full run to compare the weights with."""
        folder, setting = self._folder(family, arm, seed), FAMILIES[family]
        record = folder / "figures.json"
        if not record.exists():
            # What was interrupted begins anew: OPD and GRPO would resume with other problems.
            shutil.rmtree(folder, ignore_errors=True)
            share = EARLY_SHARE if arm == _FIRST_STEPS else 1
            steps = 2 if self._quick else round(share * setting.steps)
            run = maskreg.retrain(
                mask and mask(),
                recipe=setting.recipe,
                data=self._out / ("answers.jsonl" if setting.recipe == "sft" else "prompts.jsonl"),
                out=folder,
                source=self.start(family),
                batch_size=setting.batch,
                config={**CONFIG, **setting.config, "max_steps": steps, "seed": seed},
                control=control if mask else FULL,
                control_seed=seed if control and KINDS[control].seeded else None,
                teacher=str(self._teacher) if setting.recipe == "opd" else "",
                reward=f"{right.__module__}:right" if setting.recipe == "grpo" else "",
            )
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
            found = {"density": run.density, "visible": run.visible_density, **measure(run.model, self._teacher)}
            print(f"{folder.name}: {run.seconds:.0f} s, {found}", file=sys.stderr, flush=True)
            record.write_text(json.dumps(found), encoding="utf-8")
        figures: Record = json.loads(record.read_text(encoding="utf-8"))
        if beside is not None and "same" not in figures:
            ends = (self.start(family), self._folder(family, FULL, beside) / "model", folder / "model")
            figures |= _agreement(*(end / "model.safetensors" for end in ends))
            record.write_text(json.dumps(figures), encoding="utf-8")
        return figures


@contextmanager
def projecting(directions: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Replace each gradient ``g`` of these matrices by ``g V V^T``, before it is accumulated and clipped.

    The model is met in its first forward pass, because it is made within the run. A teacher is not trained.
    """

    def meet(module: torch.nn.Module, _: object) -> None:
        named: dict[str, Any] = dict(module.named_parameters())
        if directions.keys() <= {name for name, parameter in named.items() if parameter.requires_grad}:
            handle.remove()
            for name, v in directions.items():
                named[name].register_hook(lambda g, v=v: (g.float() @ v @ v.mT).to(g.dtype))

    handle = register_module_forward_pre_hook(meet)
    try:
        yield
    finally:
        handle.remove()


def _changes(source: Path, target: Path) -> dict[str, torch.Tensor]:
    """What changes in each matrix, fp64."""
    before, after = (load_file(side / "model.safetensors") for side in (source, target))
    return {name: after[name].double() - start.double() for name, start in before.items() if start.dim() == 2}


def _inside(source: Path, target: Path, directions: Mapping[str, torch.Tensor]) -> float:
    """Share of the energy of what changes in matrices that lies in directions."""
    changes = _changes(source, target)
    inside = sum(float((changes[name] @ v.double()).square().sum()) for name, v in directions.items())
    return inside / sum(float(change.square().sum()) for change in changes.values())


def _agreement(source: Path, full: Path, other: Path) -> Record:
    """Share of all coordinates that end with the same bits as in a full run, and of what that run has changed."""
    sides = [load_file(path) for path in (source, full, other)]
    numel = changed = same = both = 0
    for name, start in sides[0].items():
        before, ours, theirs = (side[name].view(torch.int16) for side in sides)
        moved, equal = before != ours, ours == theirs
        numel, changed = numel + start.numel(), changed + int(moved.sum())
        same, both = same + int(equal.sum()), both + int((moved & equal).sum())
    return {"same": same / numel, "same_of_changed": both / max(changed, 1)}
