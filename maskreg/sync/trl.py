"""TRL's GRPO, and its asynchronous GRPO, with rollouts from servers of vLLM that load each step's link."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from trl import GRPOConfig, GRPOTrainer

from maskreg.errors import UsageError
from maskreg.live.state import is_sharded
from maskreg.sync.servers import RolloutServers
from maskreg.workspace.verbs.publish import Publisher


class SyncedGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """Before each generation, publishes the weights as a link and has the servers load it.

    The trainer needs no vLLM. TRL's importance sampling correction applies.
    """

    def __init__(
        self,
        *args: Any,
        publisher: Publisher,
        servers: Sequence[str],
        init_info: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take what ``trl.GRPOTrainer`` takes; its keys that begin with ``vllm_server`` have no effect.

        Args:
            args: as ``trl.GRPOTrainer`` takes them.
            publisher: publishes the run, from the checkpoint that the servers were started from; its owner closes it.
            servers: URLs of servers of vLLM with the backend ``maskreg``, which share the prompts.
            init_info: what servers are told of the run: fields of :class:`~maskreg.sync.vllm.engine.InitInfo` beside
                ``ref``, such as ``remote``.
            kwargs: as ``trl.GRPOTrainer`` takes them.

        Raises:
            UsageError: no server.
        """
        rollouts = RolloutServers(servers, {"ref": str(publisher.ref), **(init_info or {})})
        # TRL would copy the weights over NCCL itself.
        args, kwargs = tuple(map(_without_vllm, args)), {name: _without_vllm(value) for name, value in kwargs.items()}
        super().__init__(*args, **kwargs)
        self.use_vllm, self.vllm_mode, self._last_loaded_step = True, "server", -1
        self.vllm_generation = _Rollouts(self, publisher, rollouts)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train, and publish the result too."""
        output = super().train(*args, **kwargs)
        self.vllm_generation.sync_weights()
        return output

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with the figures of the latest sync: ``sync/publish_s``, ``sync/update_s``, ``sync/bytes``..."""
        super().log({**logs, **self.vllm_generation.figures}, start_time)


class LinkTransfer:
    """The ``weight_transfer`` of TRL's ``AsyncGRPOTrainer``: publishes each version as a link, which all servers load.

    Servers generate until it is published.
    """

    def __init__(
        self, publisher: Publisher, servers: Sequence[str], init_info: Mapping[str, Any] | None = None
    ) -> None:
        """Take what :class:`SyncedGRPOTrainer` takes; nothing is sent.

        Raises:
            UsageError: no server.
        """
        self._publisher = publisher
        self._servers = RolloutServers(servers, {"ref": str(publisher.ref), **(init_info or {})})

    def init_weight_transfer(self) -> None:
        """Do nothing: the first version tells the servers of the run."""

    def pause(self) -> None:
        """Do nothing: servers pause while they load."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Publish whole tensors, of which this process holds a copy in host memory, and have all servers load them.

        Raises:
            MaskregError: as :class:`~maskreg.Publisher` and :class:`~maskreg.sync.servers.RolloutServers` raise.
        """
        published = self._publisher.publish({name: tensor.detach().cpu() for name, tensor in iterator})
        assert published is not None  # no other process publishes
        self._servers.load(str(published.digest))

    resume = destroy = pause


class _Rollouts:
    """What GRPOTrainer asks of its servers: to load the weights as they are, and to complete prompts."""

    def __init__(self, trainer: SyncedGRPOTrainer, publisher: Publisher, servers: RolloutServers) -> None:
        self.figures: dict[str, float] = {}
        self._trainer, self._publisher, self._servers = trainer, publisher, servers
        self._step_of: dict[str, int] = {}

    def sync_weights(self) -> None:
        trainer, step = self._trainer, self._trainer.state.global_step
        if not (trainer.accelerator.is_main_process or is_sharded(trainer.model)):
            return
        self.figures = {}
        with self._timed("publish_s"):
            published = self._publisher.publish(trainer.model, meta={"step": str(step)})
        if published is None:  # the first process tells the servers
            return
        version = str(published.digest)
        with self._timed("update_s"):
            phases = self._servers.load(version)
        self._step_of[version] = step
        event = published.event
        self.figures |= replace(event, seconds={**event.seconds, **phases}).figures()

    def generate(
        self,
        prompts: list[list[int]],
        images: Any,
        num_generations: int,
        profiler: AbstractContextManager[Any] | None = None,
    ) -> tuple[None, list[list[int]], list[list[list[float]]], None]:
        if images is not None:
            raise UsageError("prompts with images cannot be completed here", hint="leave images out of the data")
        process, batch = self._trainer.accelerator.process_index, gather_object(prompts)
        answer: list[Any] = [None]
        if process == 0:
            with profiler or nullcontext(), self._timed("generate_s"):
                answer = [self._complete(batch[::num_generations], num_generations)]
        mine = broadcast_object_list(answer)[0][process * len(prompts) : (process + 1) * len(prompts)]
        return None, [ids for ids, _ in mine], [[[each] for each in sampled] for _, sampled in mine], None

    def _complete(self, prompts: list[list[int]], count: int) -> list[tuple[list[int], list[float]]]:
        trainer = self._trainer
        oldest = min(self._step_of.get(version, -1) for version in self._servers.versions())
        self.figures["sync/staleness_steps"] = trainer.state.global_step - oldest
        sampling = {
            "n": count,
            "logprobs": 0,
            "max_tokens": trainer.max_completion_length,
            "min_p": trainer.min_p or 0.0,
            "repetition_penalty": trainer.repetition_penalty,
            "temperature": trainer.temperature,
            "top_k": trainer.top_k,
            "top_p": trainer.top_p,
        }
        choices = self._servers.complete(prompts, **sampling | (trainer.args.generation_kwargs or {}))
        return [(choice["token_ids"], choice["logprobs"]["token_logprobs"]) for choice in choices]

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.figures[f"sync/{name}"] = time.perf_counter() - began


def _without_vllm(value: Any) -> Any:
    if isinstance(value, GRPOConfig):
        value = copy(value)
        value.use_vllm = False
    return value
