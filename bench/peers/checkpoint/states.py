"""The states that are saved: random bits, the same for the same name, so that nothing compresses.

``dense`` is a small transformer with AdamW (2.19 GB, 360 tensors: bf16 weights, fp32 norms and moments),
``many`` 20,000 tensors of 1 to 8 KB, ``tiny`` and ``few`` are for faults and quick runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

Spec = tuple[str, torch.dtype, tuple[int, ...]]


@dataclass(frozen=True)
class Transformer:
    """Sizes of a transformer whose training state is made up."""

    width: int
    hidden: int
    layers: int
    words: int

    def parameters(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes."""
        d, h = self.width, self.hidden
        rows: list[tuple[str, tuple[int, ...]]] = [("embed.weight", (self.words, d))]
        for layer in range(self.layers):
            name = f"layers.{layer}."
            rows += [(f"{name}attention.{part}.weight", (d, d)) for part in "qkvo"]
            rows += [(f"{name}mlp.gate.weight", (h, d)), (f"{name}mlp.up.weight", (h, d))]
            rows += [(f"{name}mlp.down.weight", (d, h))]
            rows += [(f"{name}norm1.weight", (d,)), (f"{name}norm2.weight", (d,))]
        return [*rows, ("norm.weight", (d,)), ("head.weight", (self.words, d))]

    def specs(self) -> list[Spec]:
        """Weights, then both moments."""
        parameters = self.parameters()
        specs: list[Spec] = []
        for name, shape in parameters:
            specs.append(
                (f"model.{name}", torch.float32 if "norm" in name else torch.bfloat16, shape)
            )
        for moment in ("exp_avg", "exp_avg_sq"):
            specs += [
                (f"optimizer.{moment}.{name}", torch.float32, shape) for name, shape in parameters
            ]
        return specs


MODELS = {
    "dense": Transformer(1024, 2816, 13, 25_600),
    "small": Transformer(1024, 2816, 1, 1024),
    "tiny": Transformer(64, 176, 2, 512),
}
COUNTS = {"many": 20_000, "few": 500}  # of small tensors


def specs(kind: str) -> list[Spec]:
    """Name, type and shape of each tensor."""
    if kind in MODELS:
        return MODELS[kind].specs()
    sizes = np.random.default_rng(7).integers(256, 2049, COUNTS[kind])
    return [(f"model.t{i:05}", torch.float32, (int(size),)) for i, size in enumerate(sizes)]


def size_of(kind: str) -> int:
    """Bytes of all tensors."""
    return sum(math.prod(shape) * dtype.itemsize for _, dtype, shape in specs(kind))


def make(kind: str, version: int = 1) -> dict[str, torch.Tensor]:
    """The state; other versions differ in every tensor."""
    state = {}
    for number, (name, dtype, shape) in enumerate(specs(kind)):
        words = -(-math.prod(shape) * dtype.itemsize // 8)
        raw = np.random.Generator(np.random.SFC64([version, number])).integers(
            0, 2**64, words, dtype=np.uint64
        )
        flat = torch.from_numpy(raw.view(np.uint8)[: math.prod(shape) * dtype.itemsize])
        state[name] = flat.view(dtype).reshape(shape)
    return state


def empty(kind: str) -> dict[str, torch.Tensor]:
    """Tensors of the state whose memory is there and whose content is not."""
    return {name: torch.ones(shape, dtype=dtype) for name, dtype, shape in specs(kind)}


def change(state: dict[str, torch.Tensor], turn: int) -> None:
    """Change each tensor a little, as a step of training does to all of it."""
    for tensor in state.values():
        raw = tensor.reshape(-1).view(torch.uint8)
        raw[0] ^= turn & 0xFF
        raw[-1] ^= turn & 0xFF


def differing(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> int:
    """How many tensors differ in their bits."""
    return sum(
        name not in found
        or not torch.equal(
            found[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)
        )
        for name, tensor in expected.items()
    )
