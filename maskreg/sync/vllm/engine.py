"""The worker's side: every worker of a server has one engine.

::

    while serving    one worker of each machine looks at the tag, and makes the latest version on disk
    update           the first worker says what "latest" is; every worker opens the version
                     all can: every worker loads it           one cannot: nothing is loaded anywhere
                     all did: this version is served          one did not: the earlier version is loaded again
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from vllm.distributed import get_world_group
from vllm.distributed.weight_transfer.base import WeightTransferEngine
from vllm.logger import init_logger
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.errors import MaskregError, UsageError, WorkerError, translating
from maskreg.live.memory import DTYPES, NAMES
from maskreg.live.processes import FAILURES, Processes
from maskreg.sync.node import LATEST, NodeVersions, Version, tensors_of
from maskreg.tensors.info import FLOAT

T = TypeVar("T")

_log = init_logger("vllm.maskreg")
logging.getLogger("maskreg.sync").parent = logging.getLogger("vllm")  # whose handlers write a server's log

_PATIENCE_S = 5.0
"""How long a fetch at work is waited for when the server stops."""

_UNPACKED = (UnquantizedLinearMethod, UnquantizedEmbeddingMethod)

_LOADER_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What a model's loader can raise on one worker, beside what all processes are told of."""


@dataclass(frozen=True)
class InitInfo:
    """What a server is told once.

    Attributes:
        ref: the tag of the run.
        remote: name, URL or path of the registry that has it; by default the default remote of the server's
            configuration, or its local registry.
        source: the checkpoint that the run began from; by default the model that is served.
        every_s: seconds between two looks at the tag.
        folder: where versions are kept, on each machine; by default in the local registry.
    """

    ref: str
    remote: str | None = None
    source: str | None = None
    every_s: float = 1.0
    folder: str | None = None

    def __post_init__(self) -> None:
        texts = (self.ref, self.remote or "", self.source or "", self.folder or "")
        if not all(isinstance(text, str) for text in texts):
            raise UsageError("ref, remote, source and folder are texts")
        if not isinstance(self.every_s, int | float) or not self.every_s > 0:
            raise UsageError(f"every_s={self.every_s!r}: pass seconds between two looks, more than 0")


class MaskregEngine(WeightTransferEngine):  # type: ignore[misc]
    """Brings what a run publishes into a worker's model.

    Attributes:
        served: the version whose weights the model has; None while it has the weights that it was started with, and
            where an update failed and could not be undone.
    """

    # Parsed by the engine, whose errors the worker answers in its own way.
    init_info_cls = dict
    update_info_cls = dict
    supports_draft_weight_update = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.served: Version | None = None
        self._open = ExitStack()
        self._versions: NodeVersions | None = None

    def init_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Say in the fields of :class:`InitInfo` which run the server follows: its workers begin to fetch.

        Raises:
            UsageError: a wrong field, or a model that :func:`check_served` refuses.
        """
        with self._answering():
            self._together(lambda: self._begin(_parsed(init_info)))

    def start_weight_update(self) -> None:
        """Do nothing: until a version is ready the model stays as it is."""

    def receive_weights(self, update_info: Mapping[str, Any]) -> None:
        """Load a version, which is made first where it is not on this machine yet.

        After an error the model has the weights that it had. vLLM then waits for ``finish_weight_update``.

        Args:
            update_info: ``version``: ``latest``, which is the default, or a digest.
        """
        with self._answering():
            versions, version = self._together(lambda: self._wanted(update_info))
            target = self._processes.gathered(version)[0]
            assert target is not None  # the first process names it, or all fail together
            self._commit(versions, target)

    def finish_weight_update(self) -> None:
        """Do nothing: the version is served already."""

    def shutdown(self) -> None:
        """Stop fetching; the model stays as it is."""
        self._open.close()
        self._versions = None

    @property
    def _processes(self) -> Processes:
        return Processes(get_world_group().cpu_group, torch.device("cpu"))

    def _begin(self, info: InitInfo) -> None:
        self.shutdown()
        with ExitStack() as failed:
            versions = failed.enter_context(
                NodeVersions(info.ref, info.source or self.model_config.model, remote=info.remote, folder=info.folder)
            )
            check_served(versions.source, self.vllm_config)
            if self._is_first_here:
                stager = _Stager(versions, info.every_s, lambda: self.served)
                failed.callback(stager.stop)
            self._open = failed.pop_all()
        self._versions = versions

    def _wanted(self, update_info: Mapping[str, Any]) -> tuple[NodeVersions, Version | None]:
        if self._versions is None:
            raise UsageError("the server was not told which run it follows", hint="POST /init_weight_transfer_engine")
        if surplus := update_info.keys() - {"version"}:
            raise UsageError(f"update_info has {', '.join(sorted(surplus))}; it takes version alone")
        version = update_info.get("version", LATEST)
        is_first = self._processes.rank == self._processes.ranks[0]
        return self._versions, self._versions.find(version) if is_first else None

    def _commit(self, versions: NodeVersions, target: Version) -> None:
        first = self._is_first_here
        with ExitStack() as opened:

            def checkpoint_if(mine: bool) -> Checkpoint | None:
                return opened.enter_context(versions.opened(target, check=first)) if mine else None

            # The first worker of a machine checks what lies there, or makes it; then the others open it.
            checked = self._together(lambda: checkpoint_if(first))
            checkpoint = self._together(lambda: checkpoint_if(not first)) or checked
            assert checkpoint is not None
            begun = time.monotonic()
            try:
                self._together(lambda: load_weights(self.model, self.model_config, checkpoint))
            except FAILURES:
                # Until it is undone, no version is served as a whole.
                before, self.served = self.served, None
                try:
                    self._together(lambda: self._restore(versions, before))
                except FAILURES as error:
                    raise WorkerError(
                        f"the update failed and could not be undone ({error}): the model has weights of two versions",
                        hint="update to another version, or restart the server, before it answers requests",
                    ) from error
                self.served = before
                raise
        self.served = target
        if first:
            versions.event(target, time.monotonic() - begun).log()

    def _restore(self, versions: NodeVersions, before: Version | None) -> None:
        """Load the weights that the model had before an update that failed."""
        with versions.opened(before) if before else open_checkpoint(self.model_config.model) as checkpoint:
            load_weights(self.model, self.model_config, checkpoint)

    def _together(self, work: Callable[[], T]) -> T:
        def told() -> T:
            with translating(_LOADER_FAILURES, lambda error: WorkerError(f"{type(error).__name__}: {error}")):
                return work()

        return self._processes.together(told)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            if isinstance(error, MaskregError):
                error.message = f"{error.code}: {error.message}" + (f" ({error.hint})" if error.hint else "")
            # vLLM reads answers in the order of the ranks, and none after an error: they would pass for answers to
            # the next call. So the last worker alone raises what all of them know.
            if self.parallel_config.rank == self.parallel_config.world_size - 1:
                raise
            _log.error("%s", error)

    @property
    def _is_first_here(self) -> bool:
        return bool(get_world_group().local_rank == 0)


class _Stager:
    """Makes the latest version on this machine, again and again, and tells a service what it serves; on a thread."""

    def __init__(self, versions: NodeVersions, every_s: float, served: Callable[[], Version | None]) -> None:
        self._versions, self._every_s, self._served = versions, every_s, served
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maskreg-stager", daemon=True)
        self._ready: Version | None = None
        self._fault = ""
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._look()
                self._versions.tell(self._served())
                self._fault = ""
            except FAILURES as error:
                # An update says it to its client; here once is enough.
                if str(error) != self._fault:
                    self._fault = str(error)
                    _log.warning("%s cannot be fetched yet: %s", self._versions.ref, error)
            self._stopped.wait(self._every_s)

    def _look(self) -> None:
        latest = self._versions.find(LATEST)
        if latest != self._ready:
            with self._versions.opened(latest):
                self._ready = latest


def _parsed(init_info: Mapping[str, Any]) -> InitInfo:
    names = [field.name for field in fields(InitInfo)]
    if surplus := sorted(init_info.keys() - set(names)):
        raise UsageError(f"init_info has {', '.join(surplus)}; it takes {', '.join(names)}")
    if "ref" not in init_info:
        raise UsageError("init_info has no ref: the tag of the run, such as lab/run")
    return InitInfo(**init_info)


class WorkerExtension:
    """What workers can be asked, with ``--worker-extension-cls maskreg.sync.vllm.engine.WorkerExtension``."""

    weight_transfer_engine: MaskregEngine

    def maskreg_served(self) -> dict[str, str]:
        """Digest and root of the version that this worker serves; empty until a version was loaded."""
        served = self.weight_transfer_engine.served
        return {} if served is None else {"digest": str(served.digest), "root": served.root}


def check_served(checkpoint: Checkpoint, config: Any) -> None:
    """Refuse a model that is not served in the bits of its checkpoint.

    Raises:
        UsageError: it is quantized, or served in another dtype, with adapters, or with layers that lie elsewhere.
    """
    model_config = config.model_config
    stored = {info.dtype for info in checkpoint.tensors.values()}
    if model_config.quantization is not None or not stored <= DTYPES.keys():
        how = model_config.quantization or ", ".join(sorted(stored - DTYPES.keys()))
        raise UsageError(
            f"the model is served quantized ({how}), and links are between unquantized weights",
            hint="serve the unquantized checkpoint that the run began from",
        )
    if NAMES[model_config.dtype] not in stored & FLOAT:
        wanted = ", ".join(sorted(stored & FLOAT))
        raise UsageError(
            f"the model is served in {NAMES[model_config.dtype]}, and its checkpoint is in {wanted}",
            hint="start vLLM with dtype=auto",
        )
    if config.lora_config is not None:
        raise UsageError("the model is served with LoRA adapters", hint="start vLLM without enable_lora")
    prefetch = getattr(getattr(config, "offload_config", None), "prefetch", None)
    if prefetch is not None and prefetch.offload_group_size:
        # Its layers are copied anew from the host before they are used, over what was loaded.
        raise UsageError("layers of the model are prefetched", hint="start vLLM without offload_group_size")


def load_weights(model: torch.nn.Module, model_config: Any, checkpoint: Checkpoint) -> None:
    """Load all tensors of a checkpoint into a model that serves; its parameters stay where they are in memory.

    Layers that compute with what loaders write are loaded in place. vLLM's reload, which makes a layer anew and copies
    it over the one in use, is for the others: packed layers, and attention.
    """
    plain, others = list[torch.nn.Module](), list[torch.nn.Module]()
    for layer in model.modules():
        (plain if _is_plain(layer) else others).append(layer)
    reloaded = SimpleNamespace(modules=lambda: others)  # vLLM's reload asks for no more of a model
    initialize_layerwise_reload(reloaded)
    try:
        model.load_weights(tensors_of(checkpoint))  # type: ignore[operator]
    finally:
        finalize_layerwise_reload(reloaded, model_config)
    for layer in plain:
        # It might keep a packed copy beside the parameter, of a tied head too.
        if isinstance(method := getattr(layer, "quant_method", None), UnquantizedEmbeddingMethod):
            method.process_weights_after_loading(layer)


def _is_plain(layer: torch.nn.Module) -> bool:
    """Whether loaders can write to the parameters that a layer uses: none was packed or replaced after it was made."""
    method = getattr(layer, "quant_method", None)
    if isinstance(method, QuantizeMethodBase) and type(method) not in _UNPACKED:
        return False
    used, (loaded, _) = dict(layer.named_parameters(recurse=False)), get_layerwise_info(layer).restore_metadata
    return (
        bool(loaded)
        and not hasattr(layer, "process_weights_after_loading")
        and all(name in used and _layout(used[name]) == _layout(loaded[name]) for name in loaded)
    )


def _layout(tensor: torch.Tensor) -> tuple[object, ...]:
    return type(tensor), tensor.shape, tensor.stride(), tensor.dtype
