"""A tiny Qwen3 with random weights, its steps, and real servers of vLLM that generate from it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

START_SECONDS = 1200.0

WORDS = 250

MAKE_MODEL = """
import sys
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

folder, words, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
vocabulary = {"<unk>": 0, "<eos>": 1, **{f"w{n}": n + 2 for n in range(words)}}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>")
torch.manual_seed(0)
model = Qwen3ForCausalLM(Qwen3Config(
    vocab_size=len(vocabulary), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, max_position_embeddings=256, tie_word_embeddings=True, eos_token_id=1,
    bos_token_id=None,
)).to(torch.bfloat16)
for step in range(steps + 1):
    model.save_pretrained(f"{folder}/step-{step}")
    tokenizer.save_pretrained(f"{folder}/step-{step}")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 0.05 * (torch.rand_like(parameter) < 0.05))
"""


def make_steps(folder: Path, count: int) -> list[Path]:
    """The source and ``count`` checkpoints after it, each of which moves some coordinates of every tensor."""
    command = [sys.executable, "-c", MAKE_MODEL, str(folder), str(WORDS), str(count)]
    subprocess.run(command, check=True, capture_output=True)
    return [folder / f"step-{step}" for step in range(count + 1)]


def server_environment(home: Path) -> dict[str, str]:
    """Variables of a process of vLLM, and where its registry is."""
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "MASKREG_CONFIG": str(home / "config.toml"),
        "MASKREG_HOME": str(home / "home"),
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
    }


def wait_for_version(home: Path, root: str) -> None:
    """Wait until the servers of a machine have a version, which they fetch while they serve."""
    end = time.monotonic() + START_SECONDS
    while not (found := list((home / "home/sync").glob(f"*/{root.removeprefix('sha256:')}"))):
        assert time.monotonic() < end
        time.sleep(0.1)
    with (found[0].parent / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until the page cache has it too


class Server:
    """A server of vLLM on the CPU, with the backend of this package, in a process group of its own."""

    def __init__(self, model: Path, port: int, log: Path, home: Path, *more: str, processes: int = 2) -> None:
        """Start it; :meth:`wait` says when it answers."""
        command = [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)),
            *("--served-model-name", "tiny", "--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "64"),
            *("--max-num-seqs", "4", "--tensor-parallel-size", str(processes)),
            *("--weight-transfer-config", '{"backend": "maskreg"}'),
            *("--worker-extension-cls", "maskreg.sync.vllm.engine.WorkerExtension"),
            *more,
        ]
        self.port, self.log = port, log
        with log.open("wb") as out:
            # Elsewhere than in the repository, whose metadata would pass for the installed package's.
            self._process = subprocess.Popen(
                command,
                cwd=log.parent,
                env=server_environment(home),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                if self.ask("/health", method="GET")[0] == 200:
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        raise RuntimeError(f"vLLM did not start:\n{self.log.read_text(errors='replace')[-8000:]}")

    def ask(self, path: str, body: object = None, *, method: str = "POST") -> tuple[int, Any]:
        """The status and the document of an answer."""
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def follow(self, **init_info: Any) -> tuple[int, Any]:
        """Say which run it follows."""
        return self.ask("/init_weight_transfer_engine", {"init_info": init_info})

    def update(self, version: str = "latest", **more: Any) -> tuple[int, Any]:
        """Pause, load a version and resume, as a trainer does; the answer to the update itself."""
        assert self.ask("/pause")[0] == 200
        assert self.ask("/start_weight_update")[0] == 200
        answer = self.ask("/update_weights", {"update_info": {"version": version, **more}})
        # After an error vLLM has it closed already in the worker that answered.
        assert self.ask("/finish_weight_update", {"weight_version": version})[0] in (200, 500)
        assert self.ask("/resume")[0] == 200
        return answer

    def log_probabilities(self) -> object:
        """Of a prompt and what is generated after it, as the server writes them."""
        status, answer = self.ask(
            "/v1/completions",
            {
                "model": "tiny",
                "prompt": "w1 w2 w3 w4 w5 w6 w7 w8",
                "max_tokens": 6,
                "temperature": 0,
                "logprobs": 5,
                "prompt_logprobs": 5,
            },
        )
        assert status == 200, answer
        choice = answer["choices"][0]
        return [choice[key] for key in ("text", "logprobs", "prompt_logprobs")]

    def served(self) -> list[dict[str, str]]:
        """What each worker says that it serves."""
        status, answer = self.ask("/collective_rpc", {"method": "maskreg_served"})
        assert status == 200, answer
        return list(answer["results"])

    def events(self) -> list[dict[str, Any]]:
        """One of each sync, as its log has them."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line[line.index("{") :]) for line in lines if '"moved_share"' in line]

    def kill(self) -> None:
        """End all of its processes at once, if they have not ended."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
