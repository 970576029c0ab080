"""Patches a model on a device, and counts what crosses the bus: ``python -m tests.flow.apply.crossing DIR [cpu|cuda]``.

On the CPU that takes ``TRITON_INTERPRET=1``, before anything imports Triton; hence a process of its own. The CPU then
stands in for the device, so all that maskreg turns into an array, or makes of one, would cross the bus.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from maskreg import apply_
from maskreg.codec import triton_decode
from maskreg.live import triton_leaves
from maskreg.tensors.bus import counted
from tests.checkpoints import Tensor, bf16, f32, moved
from tests.flow.apply.sharding import artifact
from tests.flow.apply.test_in_memory import holds, live
from tests.flow.making import bits


def source_of() -> dict[str, Tensor]:
    """Dense and sparse; noise, which is not coded; one that stays; one that is stored whole."""
    return {
        "dense": bf16((2, 800), 1),
        "sparse": bf16((1100,), 2),
        "noise": bits(bf16((130,), 3)[1]),
        "kept": bf16((200,), 4),
        "router": f32((90,), 5),
    }


def target_of(source: dict[str, Tensor]) -> dict[str, Tensor]:
    """An update; sparse blocks have few movers, which an interpreter takes long for."""
    return {
        **source,
        "dense": moved(source["dense"], 0.4),
        "sparse": moved(source["sparse"], 0.004),
        "noise": bits(source["noise"][1][::-1] ^ 0x80),
        "router": f32((90,), 6),
    }


def main(directory: str, device: str) -> None:
    """Print what crossed, and whether the results are right."""
    triton_leaves.PROGRAM_LEAVES = 1 if device == "cuda" else 8
    triton_decode.PROGRAM_LANES = 32 if device == "cuda" else 512
    first = artifact(Path(directory))
    source = source_of()
    state = {name: tensor.to(device) for name, tensor in live(source).items()}
    outcome: dict[str, Any] = {"weights": sum(tensor.nbytes for tensor in state.values())}
    with counted() as bus:
        apply_(state, first, jobs=1)
    outcome["bus"] = bus
    outcome["right"] = holds({name: tensor.cpu() for name, tensor in state.items()}, target_of(source))
    outcome["payload"] = sum(rows[-1][1] for rows in (first.rows_of_objects("delta"), first.rows_of_objects("whole")))
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(*sys.argv[1:])
