"""States of the random number generators, as plain values: each rank keeps its own that way."""

from __future__ import annotations

import base64
import random
import sys
from typing import Any


def rng_states() -> dict[str, Any]:
    """Return those of Python, and of NumPy and PyTorch (CPU and CUDA) where these were imported.

    As a part of a state each rank gets its own back.
    """
    states: dict[str, Any] = {"python": random.getstate()}
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = _text(torch.random.get_rng_state())
        states["cuda"] = [_text(state) for state in _cuda_states(torch)]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, gauss = numpy.random.get_state()
        states["numpy"] = (
            name,
            base64.b64encode(keys.astype("<u4").tobytes()).decode(),
            int(position),
            int(has_gauss),
            float(gauss),
        )
    return states


def set_rng_states(states: dict[str, Any]) -> None:
    """Set them. Generators of devices that are not here are left out."""
    random.setstate(states["python"])
    if "torch" in states:
        import torch

        torch.random.set_rng_state(_tensor(states["torch"]))
        if torch.cuda.is_available():
            for device, text in enumerate(states["cuda"][: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(_tensor(text), device)
    if "numpy" in states:
        import numpy

        name, keys, position, has_gauss, gauss = states["numpy"]
        words = numpy.frombuffer(base64.b64decode(keys), dtype="<u4")
        numpy.random.set_state((name, words, position, has_gauss, gauss))


def _cuda_states(torch: Any) -> list[Any]:
    # Asking must not start CUDA in a process that does not use it.
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    return list(torch.cuda.get_rng_state_all())


def _text(state: Any) -> str:
    return base64.b64encode(state.cpu().numpy().tobytes()).decode()


def _tensor(text: str) -> Any:
    import torch

    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
