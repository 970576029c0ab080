"""verl's weight sync over a registry: its trainer publishes links, and its rollout workers load the versions they give.

::

    trainer    every process gathers each tensor; the first copies it to host memory, publishes, and answers
    answer     the digest of the link, or what went wrong; over TCP, from the first process of the trainer
    rollout    every worker waits for it, opens the version, made once on each machine, and hands on its tensors

verl imports this module where ``checkpoint_engine.custom_backend_module`` names it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import ray
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from maskreg.errors import UsageError, WorkerError
from maskreg.sync.node import NodeVersions, tensors_of
from maskreg.workspace.verbs.publish import Publisher
from maskreg.workspace.verbs.retention import Retention

BACKEND = "maskreg"
"""The name in ``checkpoint_engine.backend``, and of the options in ``checkpoint_engine.engine_kwargs``."""


@dataclass(frozen=True)
class RunOptions:
    """A run, as ``checkpoint_engine.engine_kwargs.maskreg`` says it.

    Attributes:
        ref: the tag of the run.
        source: the checkpoint that the run began from.
        remote: the name of the registry that links are pushed to and fetched from.
        folder: where rollout workers keep versions, on each machine; by default in the local registry.
        retention: the fields of :class:`~maskreg.Retention`; without it all links stay.
        timeout_s: how long rollout workers wait for a link, in seconds.
    """

    ref: str
    source: str
    remote: str | None = None
    folder: str | None = None
    retention: Mapping[str, Any] | None = None
    timeout_s: float = 1800.0

    def publisher(self) -> Publisher:
        """Publishes the run."""
        retention = Retention(**self.retention) if self.retention else None
        return Publisher(self.ref, source=self.source, remote=self.remote, retention=retention)


@CheckpointEngineRegistry.register(BACKEND)
class MaskregCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """One in every process of the trainer and of the rollout, which verl makes and calls."""

    def __init__(self, bucket_size: int = 0, is_master: bool = False, **options: Any) -> None:
        """Remember the run; nothing is opened yet.

        Args:
            bucket_size: verl's; not used.
            is_master: whether this is the first process of the trainer.
            options: the fields of :class:`RunOptions`.
        """
        self._options, self._is_master = RunOptions(**options), is_master
        self._where, self._sync = ("", 0), 0

    def prepare(self) -> dict[str, Any]:
        """Say where the answer to the next sync will be; all processes but the first of the trainer say nothing."""
        if not self._is_master:
            return {}
        host = ray.util.get_node_ip_address()
        return {"where": (host, self._answers.port), "sync": self._sync + 1}

    @classmethod
    def build_topology(
        cls, trainers: int, workers: int, prepared: Sequence[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """What :meth:`init_process_group` takes in each process: what the first process of the trainer has prepared."""
        (told,) = filter(None, prepared)
        return {key: [told[key]] * trainers for key in told}, {key: [told[key]] * workers for key in told}

    def init_process_group(self, where: tuple[str, int], sync: int) -> None:
        """Remember where the answer to the next sync will be."""
        self._where, self._sync = where, sync

    def finalize(self) -> None:
        """Keep everything for the next sync."""

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> dict[str, float]:
        """Publish whole tensors; all processes of the trainer call it, since reading one can gather it in all of them.

        Returns:
            Figures for verl's log, such as ``sync/bytes``; none in all processes but the first.
        """
        answer: dict[str, str] = {}
        try:
            whole = {name: tensor.detach().cpu() for name, tensor in weights if self._is_master}
            if not self._is_master:
                return {}
            meta = {} if global_steps is None else {"step": str(global_steps)}
            published = self._publisher.publish(self._once(whole), meta=meta)
            assert published is not None  # no other process publishes
            answer = {"digest": str(published.digest)}
            return published.event.figures()
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            if self._is_master:
                self._answers.set(str(self._sync), json.dumps(answer))

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """The tensors of the version that the trainer has published, mapped from the files of this machine.

        Raises:
            WorkerError: the trainer could not publish.
            MaskregError: as :class:`~maskreg.sync.node.NodeVersions` raises.
        """
        timeout = timedelta(seconds=self._options.timeout_s)
        answers = TCPStore(*self._where, is_master=False, timeout=timeout)
        answer = json.loads(await asyncio.to_thread(answers.get, str(self._sync)))
        if "error" in answer:
            raise WorkerError(f"the trainer published nothing: {answer['error']}")
        version = self._versions.find(answer["digest"])
        with self._versions.opened(version) as checkpoint:
            begun = time.monotonic()
            for item in tensors_of(checkpoint):
                yield item
        event = self._versions.event(version, time.monotonic() - begun)
        if "fetch" in event.seconds:  # the worker that made it speaks for its machine
            event.log()

    def _once(self, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        # A model's state has tied tensors under all of their names, and a checkpoint under one.
        stored = self._versions.source.tensors.keys() & weights.keys()

        def is_copy(tensor: torch.Tensor) -> bool:
            others = (weights[name] for name in stored)
            return any(tensor.dtype == other.dtype and torch.equal(tensor, other) for other in others)

        return {name: tensor for name, tensor in weights.items() if name in stored or not is_copy(tensor)}

    @cached_property
    def _answers(self) -> TCPStore:
        return TCPStore(ray.util.get_node_ip_address(), 0, is_master=True, wait_for_workers=False)

    @cached_property
    def _publisher(self) -> Publisher:
        return self._options.publisher()

    @cached_property
    def _versions(self) -> NodeVersions:
        run = self._options
        return NodeVersions(run.ref, run.source, remote=run.remote, folder=run.folder)


class PublishCallback:
    """Publishes each save, where verl's ``trainer.checkpoint_callback_class`` names it.

    It takes the options of the engine.
    """

    def __init__(self, config: Any) -> None:
        """``config``: verl's, whole."""
        options = config.actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs[BACKEND]
        self._options = RunOptions(**options)

    def on_save(self, *, global_step: int, checkpoint_dir: str, async_save: bool = False, **_: Any) -> None:
        """Publish what the trainer has saved. This machine has to see the files of all its processes.

        Raises:
            UsageError: files might still be written.
            MaskregError: as :class:`~maskreg.Publisher` raises.
        """
        if async_save:
            raise UsageError("files of an asynchronous save might still be written", hint="save synchronously")
        with self._options.publisher() as publisher:
            publisher.publish(Path(checkpoint_dir) / "actor", meta={"step": str(global_step)})
