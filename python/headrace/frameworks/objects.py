"""States of frameworks as states that can be stored: what is no tensor, number, string or container
is pickled, as the frameworks themselves do with all of it.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from headrace.checkpoint.tree import array_kind, scalar_node
from headrace.errors import InvalidArgumentError

_PICKLED = "headrace.pickled"
_MAX_DEPTH = 100


def pack(value: Any, depth: int = 0) -> Any:
    """Return the state with objects replaced by their pickles. Tensors stay the caller's own.

    Mappings that are plain inside come back as dict.
    """
    if scalar_node(value) is not None or array_kind(value) not in (None, "dlpack"):
        return value
    if depth < _MAX_DEPTH:
        if isinstance(value, dict) and _is_plain(value):
            return {key: pack(child, depth + 1) for key, child in value.items()}
        if type(value) in (list, tuple):
            return type(value)(pack(child, depth + 1) for child in value)
    return {_PICKLED: _pickle(value)}


def _is_plain(value: Mapping[Any, Any]) -> bool:
    # State dicts of modules are OrderedDicts with an attribute; others may keep more in theirs.
    if getattr(value, "__dict__", None) and type(value) is not OrderedDict:
        return False
    keys = {str(key) for key in value if type(key) in (str, int)}
    return len(keys) == len(value) and _PICKLED not in keys


def _pickle(value: Any) -> bytes:
    import torch

    stream = io.BytesIO()
    try:
        torch.save(value, stream)
    except Exception as error:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise InvalidArgumentError(
            f"a value of the state cannot be pickled: {kind} ({error})"
        ) from error
    return stream.getvalue()


def unpack(value: Any, weights_only: bool = False) -> Any:
    """The opposite of pack.

    Raises:
        pickle.UnpicklingError: with `weights_only`, of objects that are not plain.
    """
    if isinstance(value, dict):
        if set(value) == {_PICKLED}:
            import torch

            return torch.load(
                io.BytesIO(value[_PICKLED]), map_location="cpu", weights_only=weights_only
            )
        return {key: unpack(child, weights_only) for key, child in value.items()}
    if type(value) in (list, tuple):
        return type(value)(unpack(child, weights_only) for child in value)
    return value
