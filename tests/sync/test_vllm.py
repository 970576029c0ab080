"""Real servers of vLLM, two workers each, that follow a run: exactly what a server started from the target is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import maskreg
from tests.pages import blocks
from tests.repository import ROOT
from tests.servers import free_ports
from tests.sync.vllm_server import Server, make_steps, server_environment, wait_for_version

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

begun, first, remote, url = sys.argv[1:]
register()
model = Qwen3ForCausalLM.from_pretrained(first, dtype=torch.bfloat16)
info = MaskregTrainerInitInfo("lab/run", begun, "team", {"remote": remote}, rank=0)
client = HTTPVLLMWeightSyncClient(url)
for source in (ModuleSource(model), model):
    trainer = WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 0.1 * (torch.rand_like(parameter) < 0.05))
    published = trainer.send_weights()
    trainer.shutdown()
print(json.dumps({"digest": published.digest, "root": published.artifact.manifest.target.root}))
"""

LOAD = """
import json, sys
from transformers import AutoTokenizer, Qwen3ForCausalLM
from vllm import LLM, SamplingParams
from vllm.config import set_current_vllm_config

def wide(path):
    # The kernels that pack on every CPU are those for fp32.
    Qwen3ForCausalLM.from_pretrained(path).float().save_pretrained(f"{path}-{sys.argv[1]}")
    AutoTokenizer.from_pretrained(path).save_pretrained(f"{path}-{sys.argv[1]}")
    return f"{path}-{sys.argv[1]}"

def load(worker):
    from maskreg.checkpoint import open_checkpoint
    from maskreg.sync.vllm.engine import load_weights
    model = worker.model_runner.model
    with set_current_vllm_config(worker.vllm_config):
        load_weights(model, worker.vllm_config.model_config, open_checkpoint(target))
    return min(parameter.numel() for parameter in model.parameters())

def probabilities(given):
    return given and {key: value.logprob for key, value in given.items()}

begun, target = wide(sys.argv[2]), wide(sys.argv[3])
model = LLM(begun, dtype="float32", enforce_eager=True, max_model_len=64, max_num_seqs=4)
least = model.collective_rpc(load)[0] if begun != target else 0
wanted = SamplingParams(max_tokens=6, temperature=0, logprobs=5, prompt_logprobs=5)
(answer,) = model.generate(["w1 w2 w3 w4 w5 w6 w7 w8"], wanted)
given = [*answer.prompt_logprobs, *answer.outputs[0].logprobs]
print(json.dumps([least, [probabilities(each) for each in given]]))
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
        published = self.publisher.publish(self.steps[step])
        assert published is not None
        self.links.append(published)
        return published

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
    wait_for_version(rollout.folder / "node", last.artifact.manifest.target.root)
    assert rollout.served.log_probabilities() == source
    assert rollout.served.update()[0] == 200
    assert rollout.served.log_probabilities() == target
    root = last.artifact.manifest.target.root
    assert rollout.served.served() == [{"digest": str(last.digest), "root": root}] * 2
    (event,) = rollout.served.events()
    assert (event["ref"], event["digest"]) == ("lab/run", str(last.digest))
    assert event["seconds"].keys() == {"fetch", "stage", "apply"}
    assert event["bytes"] > 0
    assert event["moved"] >= last.event.moved > 0
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


def test_a_server_with_adapters_is_refused(rollout: Rollout) -> None:
    (port,) = free_ports(1)
    more = ("--enable-lora",)
    served = Server(rollout.steps[0], port, rollout.folder / "lora.log", rollout.folder / "node", *more, processes=1)
    try:
        served.wait()
        refused(served.follow(ref="lab/run", remote=str(rollout.team)), "USAGE")
    finally:
        served.kill()


def flipped(data: bytes) -> bytes:
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


def test_layers_that_share_packed_weights_are_packed_again(rollout: Rollout) -> None:
    """The tied head of a reloaded model computes with the new embedding where layers hold packed copies."""
    source, target = str(rollout.steps[0]), str(rollout.steps[1])
    environment = server_environment(rollout.folder / "node")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", LOAD, name, begun, target],
            cwd=rollout.folder,
            env={**environment, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name, begun in (("reloaded", source), ("started", target))
    ]
    reloaded, started = (json.loads(process.communicate()[0].splitlines()[-1]) for process in running)
    assert reloaded[0] == 0  # layers keep nothing but what they packed
    assert reloaded[1] == started[1]


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


def test_what_the_page_tells_to_type_updates_a_server(rollout: Rollout) -> None:
    page = (ROOT / "docs/how-to/vllm.md").read_text()
    (block,) = (block for block in blocks(page) if "curl" in block.text)
    text = block.text.replace("localhost:8000", f"127.0.0.1:{rollout.served.port}")
    text = f"maskreg remote add team {rollout.team}\n" + text.replace('"team"', f'"{rollout.team}"')
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MASKREG_HOME": str(rollout.folder / "page"),
        "MASKREG_CONFIG": str(rollout.folder / "page.toml"),
    }
    text = text.replace("--remote team", "--remote team --json")
    done = subprocess.run(["bash", "-e", "-c", text], check=True, capture_output=True, text=True, env=environment)
    _, answer = done.stdout.rsplit('{"ref"', 1)
    (replica,) = json.loads('{"ref"' + answer)["replicas"]
    assert [{"digest": replica["digest"]}] * 2 == [{"digest": each["digest"]} for each in rollout.target.served()]
    assert replica["behind"] == 0
