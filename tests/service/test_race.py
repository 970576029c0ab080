"""Many pushes of one tag at the same time: one of them sets it, and the others are told who did."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

import maskreg
from maskreg.errors import ConflictError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.push import Pushed, push
from maskreg.service.app import create_app
from maskreg.settings import Settings
from maskreg.settings.credentials import VARIABLE
from maskreg.store.http import HttpStore
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.service.serving import listening, service_in

PUSHES = 64


def test_of_many_pushes_of_one_tag_one_wins_and_the_others_are_told_who(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "writer-token")
    source = {"model.layers.0.mlp.up_proj.weight": bf16((32, 32), 1)}
    target = {name: moved(tensor, 0.4, 2) for name, tensor in source.items()}
    pair = make_checkpoint(tmp_path / "source", source), make_checkpoint(tmp_path / "target", target)
    settings = Settings(home=tmp_path / "home", config_path=tmp_path / "config.toml")
    service = service_in(tmp_path / "served")
    with maskreg.Workspace(settings) as space, listening(create_app(service)) as url:
        stored = maskreg.extract(*pair, "team/toy:w0", workspace=space)
        first = space.local.live(Ref("team", "toy", "w0"))
        for number in range(PUSHES):
            # What differs is the card: writers who want the same of a tag do not contend for it.
            card = replace(first.card, description=f"push {number}")
            after = space.local.head(Ref("team", "toy", f"w{number}"))
            space.local.append(Ref("team", "toy", f"w{number}"), stored.digest, card=card, after=after)
        start = Barrier(PUSHES, timeout=120)

        def race(number: int) -> Pushed | ConflictError:
            with Registry(HttpStore(url), name="lab") as remote:
                remote.head(Ref("team", "toy", "best"))
                start.wait()
                try:
                    return push(space.local, remote, Ref("team", "toy", f"w{number}"), tag="best", jobs=1)
                except ConflictError as error:
                    return error

        with ThreadPoolExecutor(PUSHES) as pool:
            ends = list(pool.map(race, range(PUSHES)))
        (winner,) = (number for number, end in enumerate(ends) if isinstance(end, Pushed))
        losers = [end for end in ends if isinstance(end, ConflictError)]
        assert len(losers) == PUSHES - 1
        assert all("ada" in error.message and stored.digest.short in error.message for error in losers)
        (entry,) = service.registry.history(Ref("team", "toy", "best"))
        assert (entry.by, entry.card.description) == ("ada", f"push {winner}")
    service.workspace.close()
    service.accounts.close()
