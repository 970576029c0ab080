"""Measures how long a server of vLLM pauses for new weights: a link that maskreg has staged, or vLLM's own reload.

A random Qwen3 on the CPU, of a width and a depth. At each step 1 % of the weights move, and both load them, in turn.

  .venv-vllm/bin/python -m scripts.bench.pause 1024 28
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, Qwen3ForCausalLM

import maskreg
from tests.servers import free_ports
from tests.sync.vllm_server import Server, make_steps, wait_for_version

MOVED, REPEAT = 0.01, 5


def main() -> None:
    """Measure, and print a table."""
    wide, deep = map(int, sys.argv[1:])
    sizes = {"hidden_size": wide, "intermediate_size": 3 * wide, "num_hidden_layers": deep}
    heads = {"num_attention_heads": wide // 16, "num_key_value_heads": wide // 32}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (source,) = make_steps(folder, 0)
        config = AutoConfig.from_pretrained(source, **sizes, **heads, layer_types=["full_attention"] * deep)
        Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(source)
        state = load_file(source / "model.safetensors")
        server = Server(source, free_ports(1)[0], folder / "log", folder / "node", processes=1)
        stack.callback(server.kill)
        server.wait()
        rows = measured(folder, state, server)
    print(sum(tensor.numel() for tensor in state.values()), "weights")
    for kind, seconds in rows.items():
        print(kind, f"{median(seconds):.3f} s, of", *(f"{each:.3f}" for each in sorted(seconds)))


def measured(folder: Path, state: dict[str, torch.Tensor], server: Server) -> dict[str, list[float]]:
    """Seconds from ``/pause`` to the answer of ``/resume``, by what loads the weights."""
    rows: dict[str, list[float]] = {"maskreg": [], "vLLM": []}
    (target := folder / "target").mkdir()
    own = {"method": "reload_weights", "kwargs": {"weights_path": str(target)}}
    space = maskreg.Workspace(maskreg.Settings(home=folder / "home", config_path=folder / "config.toml"))
    maskreg.remotes.add("team", folder / "team", workspace=space)
    with space, maskreg.Publisher("lab/run", source=folder / "step-0", remote="team", workspace=space) as publisher:
        assert server.follow(ref="lab/run", remote=str(folder / "team"))[0] == 200
        for step in range(REPEAT):
            for tensor in state.values():
                bits = tensor.view(torch.int16).reshape(-1)
                bits[torch.rand(len(bits)) < MOVED] ^= 1
            published = publisher.publish(state)
            assert published is not None
            save_file(state, target / "model.safetensors", {"format": "pt"})
            wait_for_version(folder / "node", published.artifact.manifest.target.root)
            for kind in sorted(rows, reverse=bool(step % 2)):
                begun = time.monotonic()
                if kind == "maskreg":
                    assert server.update(str(published.digest))[0] == 200
                else:
                    asked = ("/pause", None), ("/collective_rpc", own), ("/resume", None)
                    assert [server.ask(*each)[0] for each in asked] == [200] * 3
                rows[kind].append(time.monotonic() - begun)
    return rows


if __name__ == "__main__":
    main()
