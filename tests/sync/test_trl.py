"""TRL's GRPO by the page's script, with a bucket and two servers of vLLM: samples are of the weights of their step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy.typing as npt
import pytest

import maskreg
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import UnavailableError, WorkerError
from maskreg.flow.chain import root_of
from maskreg.ref import Ref
from maskreg.store.entry import RefEntry
from maskreg.sync.servers import RolloutServers
from tests.pages import blocks
from tests.repository import ROOT
from tests.servers import S3Server, free_ports
from tests.sync.vllm_server import Server, make_steps, server_environment

STEPS = 20

CLOSE = 0.015
"""How far log-probabilities of bf16 are apart that two programs compute from the same weights."""

Log = list[dict[str, float]]

CPU = '"run", use_cpu=True, bf16=False,'

TRAIN = """
    import json, sys
    from maskreg.train.hooks.trainer import masked_adamw
    out, *masks = sys.argv[1:]
    for mask in masks:
        trainer.optimizer_cls_and_kwargs = masked_adamw(trainer.args, mask, gradients="packed")
    trainer.train()
    trainer.save_model(out)
    print(json.dumps(trainer.state.log_history))
"""
"""Instead of the last line of the page's script."""


WITHOUT_GPU = """
import torch
from itertools import pairwise
from types import SimpleNamespace
from trl.experimental.async_grpo import async_grpo_trainer, packing


def attention(query, key, value, begun, begun_keys, *_, softmax_scale, **options):
    rows = []
    for (start, stop), (first, last) in zip(pairwise(begun.tolist()), pairwise(begun_keys.tolist())):
        seen = torch.ones(stop - start, last - first, dtype=torch.bool).tril(last - first - stop + start)
        parts = (query[start:stop], key[first:last], value[first:last])
        heads = (part.transpose(0, 1) for part in parts)
        options = {"scale": softmax_scale, "enable_gqa": True}
        rows.append(torch.nn.functional.scaled_dot_product_attention(*heads, seen, **options))
    return torch.cat(rows, 1).transpose(0, 1)


packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=attention)
async_grpo_trainer.get_peak_flops_per_device = lambda *_: None
"""
"""TRL's asynchronous trainer without a GPU: what its kernel computes, and no figures about its use."""


@dataclass
class Cluster:
    """A checkpoint, another one, a remote in a bucket, and two servers that were started from the first."""

    folder: Path
    source: Path
    other: Path
    trainer: maskreg.Workspace
    servers: list[Server]
    start: Callable[[Path, int], Server]

    def train(self, trainer: str, run: str, script: Callable[[str], str], *arguments: str) -> tuple[Log, Path]:
        """What a run by the page's script logs at each step, and the model that it saves."""
        page = blocks((ROOT / "docs/how-to/sync-rl.md").read_text())
        (block,) = (block for block in page if block.kind == "python" and f" {trainer}(" in block.text)
        text = block.text.replace("checkpoints/source", str(self.source)).replace("lab/run", run)
        # At this learning rate weights of a small model move.
        for given, wanted in (("max_steps=20", f"max_steps={STEPS}"), ("1e-6", "3e-4"), ('"run",', CPU)):
            assert text.count(given) == 1
            text = text.replace(given, wanted)
        path, saved = self.folder / f"{trainer}.py", self.folder / run.replace("/", "-")
        path.write_text(script(text))
        done = subprocess.run(
            [sys.executable, str(path), str(saved), *arguments],
            cwd=self.folder,
            env=server_environment(self.folder / "trainer"),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-8000:]
        log = json.loads(done.stdout.splitlines()[-1])
        return [row for row in log if "loss" in row], saved

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{server.port}" for server in self.servers]

    def serves(self, run: str, saved: Path) -> list[RefEntry]:
        """The links of a run, of which both servers serve the last: it is what was saved."""
        history = self.trainer.remote("team").history(Ref.parse(run))
        with open_checkpoint(saved) as checkpoint:
            version = {"digest": str(history[-1].digest), "root": root_of(checkpoint)}
        assert [server.served() for server in self.servers] == [[version]] * 2
        return history


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    source, other = make_steps(folder, 1)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as opened:
        for name, value in s3_server.env().items():
            patch.setenv(name, value)
        url, workspaces = f"s3://{s3_server.new_bucket()}/runs", []
        for home in (folder / "trainer", folder / "node"):
            settings = maskreg.Settings(home=home / "home", config_path=home / "config.toml")
            workspaces.append(opened.enter_context(maskreg.Workspace(settings)))
            maskreg.remotes.add("team", url, endpoint=s3_server.endpoint, workspace=workspaces[-1])

        def start(model: Path, port: int) -> Server:
            mode = ("--logprobs-mode", "processed_logprobs", "--served-model-name", "tiny", str(folder / "step-0"))
            server = Server(model, port, folder / f"{port}.log", folder / "node", *mode, processes=1)
            opened.callback(server.kill)
            return server

        servers = [start(source, port) for port in free_ports(2)]
        for server in servers:
            server.wait()
        yield Cluster(folder, source, other, workspaces[0], servers, start)


@pytest.fixture(autouse=True)
def credentials(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has an environment of its own."""
    for name, value in s3_server.env().items():
        monkeypatch.setenv(name, value)


def values(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The codes of each tensor of a checkpoint."""
    with open_checkpoint(path) as checkpoint:
        return {name: checkpoint.read(name, 0, info.numel) for name, info in checkpoint.tensors.items()}


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
def test_every_sample_is_of_the_weights_of_its_step(masked: bool, cluster: Cluster) -> None:
    run, mask = ("lab/masked", ["lab/mask:v1"]) if masked else ("lab/free", [])
    if masked:
        maskreg.extract(cluster.source, cluster.other, *mask, mask_only=True, workspace=cluster.trainer)

    def script(page: str) -> str:
        page = page.replace('["http://localhost:8000"]', repr(cluster.urls))
        return page.removesuffix("    trainer.train()\n") + TRAIN

    log, saved = cluster.train("SyncedGRPOTrainer", run, script, *mask)
    assert len(log) == STEPS
    # By what the servers said that they serve when each batch was generated.
    assert {row["sync/staleness_steps"] for row in log} == {0}
    # By the samples: the trainer finds the probabilities that the servers sampled by, but for rounding.
    assert max(row["sampling/sampling_logp_difference/max"] for row in log) < CLOSE
    assert log[0]["sync/moved_share"] == 0
    moved = [row for row in log if row["sync/moved_share"]]
    assert len(moved) > STEPS / 2
    assert all(row["sync/bytes"] > 0 for row in moved)
    # The source and the result are links too, and the servers serve the result.
    assert len(cluster.serves(run, saved)) == len(moved) + 2
    source, other, result = (values(path) for path in (cluster.source, cluster.other, saved))
    changed = {name: result[name] != source[name] for name in source}
    assert sum(each.sum() for each in changed.values()) > 0
    outside = sum((changed[name] & (other[name] == source[name])).sum() for name in source)
    assert (outside == 0) == masked


def test_asynchronous_training_generates_from_what_it_publishes(cluster: Cluster) -> None:
    def script(page: str) -> str:
        page = page.replace('"http://localhost:8000"', repr(cluster.urls[0])).replace("[url]", repr(cluster.urls))
        page = page.replace("        AsyncGRPOTrainer(", "        trainer = AsyncGRPOTrainer(")
        return WITHOUT_GPU + page.removesuffix(".train()\n") + indent(TRAIN, "    ")

    template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text()
    (cluster.source / "chat_template.jinja").write_text(template)
    log, saved = cluster.train("AsyncGRPOTrainer", "lab/async", script)
    assert len(log) == STEPS
    # The first batch is of the source: the trainer finds the probabilities that the servers sampled by.
    assert log[0]["sample/staleness_max"] == 0
    assert abs(log[0]["ratio"] - 1) < CLOSE
    assert max(row["sample/staleness_mean"] for row in log) > 0
    assert len(cluster.serves("lab/async", saved)) > 2


def test_a_server_that_was_started_again_is_told_of_the_run(cluster: Cluster) -> None:
    """Another server in the place of a killed one catches up, and all compute what one started from the link does."""
    latest = maskreg.publish(
        cluster.other, "lab/served", source=cluster.source, remote="team", workspace=cluster.trainer
    )
    assert latest is not None
    first, second = cluster.servers
    urls = [f"http://127.0.0.1:{server.port}" for server in cluster.servers]
    rollouts = RolloutServers(urls, {"ref": "lab/served", "remote": "team"})
    rollouts.load(str(latest.digest))
    second.kill()
    with pytest.raises(UnavailableError):
        rollouts.versions()
    cluster.servers[1] = second = cluster.start(cluster.other, second.port)
    second.wait()
    expected = second.log_probabilities()
    assert first.log_probabilities() == expected  # as a server that was started from it
    with pytest.raises(WorkerError):
        rollouts.load("sha256:" + "0" * 64)
    rollouts.load(str(latest.digest))
    assert rollouts.versions() == [str(latest.digest)] * 2
    assert [server.log_probabilities() for server in cluster.servers] == [expected] * 2
    choices = rollouts.complete([[2], [3], [4]], n=2, max_tokens=2)
    assert [choice["prompt_token_ids"] for choice in choices[::2]] == [[2], [3], [4]]
    assert len(choices) == 6
