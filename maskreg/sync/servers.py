"""Servers of vLLM with the backend ``maskreg``, reached over HTTP; needs no vLLM here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeVar

from maskreg.errors import UsageError, WorkerError
from maskreg.store.asking import ask

T = TypeVar("T")

_PHASES = ("pause", "apply", "resume")


class RolloutServers:
    """Servers that load the same version of a run, and share the prompts of a batch.

    Attributes:
        urls: where they are, such as ``http://localhost:8000``.
    """

    def __init__(self, urls: Sequence[str], init_info: Mapping[str, Any], *, timeout_s: float = 600.0) -> None:
        """Remember where they are; nothing is sent.

        Args:
            urls: one or more servers.
            init_info: the fields of :class:`~maskreg.sync.vllm.engine.InitInfo`, the run's tag among them.
            timeout_s: how long an answer can take, in seconds.

        Raises:
            UsageError: no server.
        """
        if not urls:
            raise UsageError("there is no server to generate with", hint="pass servers=['http://localhost:8000']")
        self.urls = [url.rstrip("/") for url in urls]
        self._init_info = dict(init_info)
        self._loaded = ""
        self._timeout_s = timeout_s

    def load(self, version: str) -> dict[str, float]:
        """Have all servers load a link, by its digest, and forget what they cached of other weights.

        Requests that it interrupts go on with the new weights. A server that was started again is told first which run
        it follows.

        Returns:
            Seconds that each phase took on the server where it took longest: ``pause``, until requests stand still,
            ``apply`` and ``resume``; none where all served the version already.

        Raises:
            UnavailableError: a server does not answer.
            WorkerError: a server could not load it, and serves what it had; others might have loaded it.
        """
        phases: dict[str, float] = {}
        for seconds in self._each(lambda url, _: self._load(url, version), self.urls):
            phases |= {phase: max(took, phases.get(phase, 0.0)) for phase, took in seconds.items()}
        self._loaded = version
        return phases

    def complete(self, prompts: Sequence[Sequence[int]], **sampling: Any) -> list[dict[str, Any]]:
        """The completions of prompts, as ``/v1/completions`` answers: the ``n`` of the first prompt first.

        Args:
            prompts: token numbers; each server completes a part.
            sampling: fields of the request, such as ``n``.
        """
        size = -(-len(prompts) // len(self.urls))
        parts = [prompts[start : start + size] for start in range(0, len(prompts), size)]
        body = {"return_token_ids": True, **sampling}
        answers = self._each(lambda url, part: self._ask(url, "/v1/completions", {"prompt": part, **body}), parts)
        return [choice for answer in answers for choice in answer["choices"]]

    def versions(self) -> list[str]:
        """What each server says that it serves; another text than a digest before it has loaded a link.

        Raises:
            UnavailableError: a server does not answer.
        """
        return self._each(lambda url, _: self._version(url), self.urls)

    def _version(self, url: str) -> str:
        return str(self._ask(url, "/weight_info", method="GET")["weight_version"])

    def _load(self, url: str, version: str) -> dict[str, float]:
        serves = self._version(url)
        if serves == version == self._loaded:
            return {}
        if not self._loaded or serves != self._loaded:
            self._ask(url, "/init_weight_transfer_engine", {"init_info": self._init_info})
        # Requests wait for the load, and vLLM computes again what it has cached of them.
        times = [time.perf_counter()]
        self._ask(url, "/pause?mode=keep")
        times.append(time.perf_counter())
        try:
            self._ask(url, "/start_weight_update")
            try:
                self._ask(url, "/update_weights", {"update_info": {"version": version}})
            except WorkerError:
                # vLLM leaves the update open in all workers but the one that answered, which refuses to finish it.
                with suppress(WorkerError):
                    self._ask(url, "/finish_weight_update")
                raise
            self._ask(url, "/finish_weight_update", {"weight_version": version})
        finally:
            times.append(time.perf_counter())
            self._ask(url, "/resume")
        times.append(time.perf_counter())
        return {phase: end - start for phase, (start, end) in zip(_PHASES, pairwise(times), strict=True)}

    def _each(self, work: Callable[[str, Any], T], parts: Sequence[Any]) -> list[T]:
        with ThreadPoolExecutor(len(self.urls)) as threads:
            return list(threads.map(work, self.urls, parts))

    def _ask(self, url: str, path: str, body: Mapping[str, Any] | None = None, *, method: str = "POST") -> Any:
        content = json.dumps(body or {}).encode() if method == "POST" else b""
        return json.loads(ask(url + path, content, method=method, read_seconds=self._timeout_s))
