"""Real servers of vLLM, two workers each, that follow a run: exactly what a server started from the target is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import maskreg
from tests.servers import free_ports
from tests.sync.vllm_server import Server, make_steps

STEPS = 5

TRAIN = """
import json, sys
import torch
from transformers import Qwen3ForCausalLM
from vllm.distributed.weight_transfer.base import ModuleSource
from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
from maskreg.sync.vllm import register
from maskreg.sync.vllm.trainer import MaskregTrainerInitInfo

source, first, remote, url = sys.argv[1:]
register()
model = Qwen3ForCausalLM.from_pretrained(first, dtype=torch.bfloat16)
info = MaskregTrainerInitInfo("lab/run", source, "team", {"remote": remote}, rank=0)
client = HTTPVLLMWeightSyncClient(url)
trainer = WeightTransferTrainerFactory.trainer_init(info, client=client, source=ModuleSource(model))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(1 + 0.1 * (torch.rand_like(parameter) < 0.05))
published = trainer.send_weights()
trainer.shutdown()
print(json.dumps({"digest": published.digest, "root": published.artifact.manifest.target.root}))
"""


@dataclass
class Rollout:
    """A run on the remote ``team``, a folder, and the servers that follow it.

    Attributes:
        steps: the source and the checkpoints after it.
        served: started from the source.
        target: started from the third step.
        links: what was published, the first first.
    """

    folder: Path
    publisher: maskreg.Publisher
    steps: list[Path]
    served: Server
    target: Server
    links: list[maskreg.Published]

    @property
    def team(self) -> Path:
        return self.folder / "team"

    def publish(self, step: int) -> maskreg.Published:
        self.links.append(self.publisher.publish(self.steps[step]))
        return self.links[-1]

    def start(self, step: int, name: str, port: int) -> Server:
        return Server(self.steps[step], port, self.folder / f"{name}.log", self.folder / "node")


@pytest.fixture(scope="module")
def rollout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    folder = tmp_path_factory.mktemp("rollout")
    steps = make_steps(folder, STEPS)
    settings = maskreg.Settings(home=folder / "ada/home", config_path=folder / "ada/config.toml")
    with maskreg.Workspace(settings) as ada:
        maskreg.remotes.add("team", folder / "team", workspace=ada)
        with maskreg.Publisher("lab/run", source=steps[0], remote="team", workspace=ada) as publisher:
            rollout = Rollout(folder, publisher, steps, None, None, [])  # type: ignore[arg-type]
            ports = free_ports(2)
            rollout.served, rollout.target = rollout.start(0, "served", ports[0]), rollout.start(3, "target", ports[1])
            try:
                rollout.served.wait()
                rollout.target.wait()
                yield rollout
            finally:
                rollout.served.kill()
                rollout.target.kill()


def refused(answer: tuple[int, Any], code: str) -> None:
    """An answer says why nothing was loaded."""
    assert answer[0] >= 400
    assert code in json.dumps(answer[1])


def ready(rollout: Rollout, published: maskreg.Published) -> None:
    """Wait until the servers' machine has a version, which they fetch while they serve."""
    root = published.artifact.manifest.target.root.removeprefix("sha256:")
    end = time.monotonic() + 120
    while not list((rollout.folder / "node").glob(f"**/{root}/model.safetensors")):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_nothing_is_loaded_before_the_run_is_named(rollout: Rollout) -> None:
    before = rollout.served.log_probabilities()
    refused(rollout.served.update(), "USAGE")
    for init_info, code in (
        ({}, "USAGE"),
        ({"ref": "lab/run", "every": 1}, "USAGE"),
        ({"ref": "lab/run", "every_s": 0}, "USAGE"),
        ({"ref": "Lab run"}, "NAME_INVALID"),
        ({"ref": "lab/run", "remote": "nowhere"}, "CONFIG"),
        ({"ref": "lab/run", "source": str(rollout.folder / "nowhere")}, "NOT_FOUND"),
    ):
        refused(rollout.served.follow(**init_info), code)
    assert rollout.served.served() == [{}, {}]
    assert rollout.served.log_probabilities() == before


def test_a_server_is_what_one_started_from_the_target_is(rollout: Rollout) -> None:
    source, target = rollout.served.log_probabilities(), rollout.target.log_probabilities()
    assert source != target
    assert rollout.served.follow(ref="lab/run", remote=str(rollout.team))[0] == 200
    refused(rollout.served.update(), "NOT_FOUND")  # nothing is published yet
    first, _, last = rollout.publish(1), rollout.publish(2), rollout.publish(3)
    ready(rollout, last)
    assert rollout.served.log_probabilities() == source
    assert rollout.served.update()[0] == 200
    assert rollout.served.log_probabilities() == target
    root = last.artifact.manifest.target.root
    assert rollout.served.served() == [{"digest": str(last.digest), "root": root}] * 2
    # An earlier version, and the latest by its digest.
    assert rollout.served.update(first.digest.short)[0] == 200
    assert rollout.served.log_probabilities() not in (source, target)
    assert rollout.served.update(str(last.digest))[0] == 200
    assert rollout.served.log_probabilities() == target
    assert rollout.served.ask("/weight_info", method="GET") == (200, {"weight_version": str(last.digest)})


def test_after_an_error_a_server_has_what_it_had(rollout: Rollout) -> None:
    served = rollout.served
    before, was = served.log_probabilities(), served.served()
    refused(served.update("sha256:0000000000"), "NOT_FOUND")
    refused(served.update(more="x"), "USAGE")
    link = rollout.publish(4)
    parts = rollout.team / "artifacts/sha256" / link.digest.hex / "data.zarr/delta"
    damaged = next(path for path in sorted(parts.rglob("*")) if path.is_file() and path.name != "zarr.json")
    data = damaged.read_bytes()
    damaged.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    refused(served.update(), "DIGEST_MISMATCH")
    damaged.write_bytes(data)
    rollout.team.rename(rollout.folder / "away")
    refused(served.update(), "")
    (rollout.folder / "away").rename(rollout.team)
    assert served.served() == was
    assert served.log_probabilities() == before
    assert served.update()[0] == 200
    assert served.log_probabilities() != before


def test_a_server_of_another_model_is_refused(rollout: Rollout) -> None:
    served = rollout.served
    before = served.log_probabilities()
    (stranger,) = make_steps(rollout.folder / "stranger", 0)
    (stranger / "model.safetensors").write_bytes(flipped((stranger / "model.safetensors").read_bytes()))
    where = {"ref": "lab/run", "remote": str(rollout.team), "folder": str(rollout.folder / "strangers")}
    assert served.follow(**where, source=str(stranger))[0] == 200
    refused(served.update(), "NOT_ON_CHAIN")
    assert served.log_probabilities() == before


def flipped(data: bytes) -> bytes:
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


def test_a_server_that_was_killed_finds_its_way_from_the_source(rollout: Rollout) -> None:
    rollout.served.kill()
    late = rollout.start(0, "late", free_ports(1)[0])
    rollout.served = late
    rollout.publish(5)
    # The other server began from a link of the run, and has no more than that.
    assert rollout.target.follow(ref="lab/run", remote=str(rollout.team))[0] == 200
    third = rollout.target.log_probabilities()
    assert rollout.target.update()[0] == 200
    late.wait()
    where = {"folder": str(rollout.folder / "late"), "remote": str(rollout.team)}
    assert late.follow(ref="lab/run", **where)[0] == 200
    assert late.update()[0] == 200  # five links at once
    assert late.log_probabilities() == rollout.target.log_probabilities()
    assert late.update(str(rollout.links[2].digest))[0] == 200
    assert late.log_probabilities() == third


def test_a_trainer_publishes_and_its_server_serves_it(rollout: Rollout) -> None:
    server = rollout.served
    ada = rollout.folder / "ada"
    environment = {"MASKREG_HOME": str(ada / "home"), "MASKREG_CONFIG": str(ada / "config.toml")}
    url = f"http://127.0.0.1:{server.port}"
    command = [sys.executable, "-c", TRAIN, str(rollout.steps[0]), str(rollout.steps[5]), str(rollout.team), url]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    version = json.loads(done.stdout.splitlines()[-1])
    assert server.served() == [version] * 2
    assert server.ask("/weight_info", method="GET") == (200, {"weight_version": version["digest"]})
    assert rollout.target.update()[0] == 200
    assert server.log_probabilities() == rollout.target.log_probabilities()
