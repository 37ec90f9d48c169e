"""What a training consists of besides its loader, as one state for a Checkpointer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.checkpoint.checkpointer import Checkpointer
from headrace.checkpoint.rng import rng_states, set_rng_states
from headrace.errors import InvalidArgumentError
from headrace.frameworks.objects import pack, unpack

_RNG = "rng"


def capture(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of parts by name (what has ``state_dict``, or plain values), and of the random
    number generators.
    """
    if _RNG in parts:
        raise InvalidArgumentError(f"a part cannot be called {_RNG!r}")
    state = {
        name: pack(part.state_dict() if hasattr(part, "state_dict") else part)
        for name, part in parts.items()
    }
    return {**state, _RNG: rng_states()}


def restore(
    checkpointer: Checkpointer, step: Any, parts: Mapping[str, Any], loader: Any
) -> dict[str, Any]:
    """Load the parts that have ``load_state_dict``; returns the whole state.

    Models are filled in place, on any number of ranks; the rest is made anew and handed to them.
    """
    models = {name: part.state_dict() for name, part in parts.items() if _is_module(part)}
    others = [name for name in (*parts, _RNG) if name not in models]
    state: dict[str, Any] = checkpointer.restore(
        step,
        into={**models, **dict.fromkeys(others)},
        allow=[f"/{name}" for name in others],
        loader=loader,
    )
    for name, part in parts.items():
        if name in models:
            part.load_state_dict(state[name])
        elif hasattr(part, "load_state_dict"):
            part.load_state_dict(unpack(state[name]))
    set_rng_states(state[_RNG])
    return state


def _is_module(part: Any) -> bool:
    import torch

    return isinstance(part, torch.nn.Module)
