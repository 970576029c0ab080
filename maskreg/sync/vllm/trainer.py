"""The trainer's side: what :class:`~maskreg.Publisher` publishes, the servers of a client are told to serve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from vllm.distributed.weight_transfer.base import TrainerInitInfo, TrainerWeightTransferEngine

from maskreg.errors import UsageError
from maskreg.sync.vllm import BACKEND
from maskreg.workspace.verbs.publish import Published, Publisher


@dataclass
class MaskregTrainerInitInfo(TrainerInitInfo):  # type: ignore[misc]
    """What a trainer is told once.

    Attributes:
        ref: the tag of the run, which every link moves.
        source: the checkpoint that training began from.
        remote: where to push the links; without one they stay in the local registry.
        server: further fields of :class:`~maskreg.sync.vllm.engine.InitInfo`, such as another name of the remote.
        publisher: further arguments of :class:`~maskreg.Publisher`, such as ``retention``.
    """

    backend: ClassVar[str] = BACKEND

    ref: str
    source: str | None = None
    remote: str | None = None
    server: dict[str, Any] = field(default_factory=dict)
    publisher: dict[str, Any] = field(default_factory=dict)


class MaskregTrainer(TrainerWeightTransferEngine):  # type: ignore[misc]
    """Publishes the trainer's weights, and has the servers load them. Its methods are called in every process."""

    init_info_cls = MaskregTrainerInitInfo
    _publisher: Publisher

    @classmethod
    def trainer_init(
        cls,
        init_info: MaskregTrainerInitInfo,
        *,
        client: Any,
        source: torch.nn.Module | Iterable[tuple[str, torch.Tensor]] | None = None,
    ) -> Self:
        """Open the run, and tell the servers to follow it.

        Args:
            init_info: the run.
            client: how vLLM's servers are reached: vLLM's ``HTTPVLLMWeightSyncClient``, or another one.
            source: the model, of which each process publishes its part; or a ``WeightSource`` of vLLM with the names of
                the checkpoint, whose whole tensors the first process copies to its host memory.

        Raises:
            UsageError: there is no ``source``.
        """
        if source is None:
            raise UsageError("there are no weights to publish", hint="pass source=model")
        trainer = cls(client=client, source=source, is_sender=init_info.is_sender)
        trainer._publisher = Publisher(
            init_info.ref, source=init_info.source, remote=init_info.remote, **init_info.publisher
        )
        if trainer.is_sender:
            remote = {} if init_info.remote is None else {"remote": init_info.remote}
            client.init_weight_transfer_engine({"ref": init_info.ref, **remote, **init_info.server})
        return trainer

    def send_weights(self) -> Published | None:
        """Publish the weights as they are now, and return when the servers serve them.

        Returns:
            What was published, in the first process; None in the others.
        """
        published = self._published()
        if published is None:
            return None
        version = str(published.digest)
        self.client.start_weight_update()
        try:
            self.client.update_weights({"version": version})
        except BaseException as error:
            # vLLM leaves the update open in all workers but the one that answered.
            try:
                self.client.finish_weight_update()
            except BaseException as second:
                error.add_note(f"finish_weight_update: {second}")
            raise
        self.client.finish_weight_update(version)
        return published

    def shutdown(self) -> None:
        """Close what was opened; the servers serve what they have."""
        self._publisher.close()

    def _published(self) -> Published | None:
        if isinstance(self.source, torch.nn.Module):
            return self._publisher.publish(self.source)
        # Reading a tensor can gather it, in all processes.
        whole = {name: tensor.detach().cpu() for name, tensor in self.source if self.is_sender}
        return self._publisher.publish(whole) if self.is_sender else None
