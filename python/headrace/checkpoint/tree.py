"""A training state as a tree of containers and plain values, and a flat list of arrays.

The tree is JSON, so that any program can read what a checkpoint holds. A node is an object with
one key that says what it is:

====== =====================================================================================
``d``  dict: list of ``[key, node]``; a key is a string or an integer
``l``  list of nodes; ``t`` a tuple of nodes
``a``  array: number of its entry in the flat list, and ``as`` what it was (``torch``, ``numpy``,
       ``bytes``, ``dlpack``)
``v``  string, boolean, null, or an integer of at most 53 bits
``i``  any other integer, in decimal
``f``  float, as C99 hexadecimal, ``inf``, ``-inf`` or the 16 hexadecimal digits of a NaN
``c``  complex: two floats
``n``  NumPy scalar: name of its type, and its bytes in hexadecimal
``o``  a PyTorch object that is a name: ``dtype``, ``device`` or ``size``
====== =====================================================================================
"""

from __future__ import annotations

import math
import struct
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.errors import InvalidArgumentError

Path = tuple["str | int", ...]
Node = dict[str, Any]

_MAX_DEPTH = 200
_EXACT = 1 << 53


def path_text(path: Path) -> str:
    """Return a path as a JSON Pointer: ``("model", "a/b", 0)`` is ``"/model/a~1b/0"``."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


def path_keys(text: str) -> list[str]:
    """Return the keys of a JSON Pointer, all as strings: the opposite of path_text."""
    return [key.replace("~1", "/").replace("~0", "~") for key in text.split("/")[1:]]


class Flat:
    """A state taken apart: `tree`, and the arrays it speaks of with their paths."""

    __slots__ = ("arrays", "paths", "tree")

    def __init__(self) -> None:
        self.tree: Node = {}
        self.paths: list[Path] = []
        self.arrays: list[Any] = []


def flatten(state: Any) -> Flat:
    """Take a state apart. The arrays are the caller's own: nothing is copied.

    Raises:
        InvalidArgumentError: Names the paths of what cannot be stored, all of them.
    """
    flat = Flat()
    refused: list[str] = []
    flat.tree = _flatten(state, (), flat, refused, set())
    if refused:
        shown = "; ".join(refused[:20]) + ("; ..." if len(refused) > 20 else "")
        raise InvalidArgumentError(
            f"{len(refused)} values of the state cannot be stored exactly: {shown}. "
            "Store tensors, arrays, numbers, strings, bytes, or dicts, lists and tuples of them"
        )
    return flat


def _flatten(value: Any, path: Path, flat: Flat, refused: list[str], above: set[int]) -> Node:
    # Tensors first: there may be very many.
    kind = "torch" if _is_tensor(value) else None
    if kind is None:
        node = scalar_node(value)
        if node is not None:
            return node
        kind = array_kind(value)
    if kind is not None:
        flat.paths.append(path)
        flat.arrays.append(value)
        return {"a": len(flat.arrays) - 1, "as": kind}
    if len(path) >= _MAX_DEPTH or id(value) in above:
        refused.append(f"{path_text(path)} (nested too deep, or inside itself)")
        return {"v": None}
    above.add(id(value))
    try:
        return _container(value, path, flat, refused, above)
    finally:
        above.discard(id(value))


def _container(value: Any, path: Path, flat: Flat, refused: list[str], above: set[int]) -> Node:
    if is_mapping(value):
        items = []
        texts: set[str] = set()
        for key, child in value.items():
            if type(key) not in (str, int) or str(key) in texts:
                kind = (
                    _type_name(key) if type(key) not in (str, int) else "the same text as another"
                )
                refused.append(f"{path_text((*path, repr(key)))} (a key of {kind})")
                continue
            texts.add(str(key))
            items.append([key, _flatten(child, (*path, key), flat, refused, above)])
        return {"d": items}
    if type(value) in (list, tuple):
        children = [
            _flatten(child, (*path, i), flat, refused, above) for i, child in enumerate(value)
        ]
        return {"l" if type(value) is list else "t": children}
    refused.append(f"{path_text(path) or 'the state itself'} ({_type_name(value)})")
    return {"v": None}


def is_mapping(value: Any) -> bool:
    """Whether a value is stored as a dict."""
    if type(value) in (dict, OrderedDict, defaultdict):
        return True
    # State dicts of other libraries subclass dict; they hold nothing beside the items.
    return isinstance(value, dict) and not getattr(value, "__dict__", None)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _type_name(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def array_kind(value: Any) -> str | None:
    """Return "torch", "numpy", "bytes" or "dlpack" for what is stored as an array, else None."""
    if _is_tensor(value):
        return "torch"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return "numpy"
    if type(value) in (bytes, bytearray):
        return "bytes"
    return "dlpack" if hasattr(value, "__dlpack__") else None


def scalar_node(value: Any) -> Node | None:
    """Return the node of a plain value; None when it is none."""
    kind = type(value)
    if value is None or kind in (bool, str):
        return {"v": value}
    if kind is int:
        return {"v": value} if -_EXACT <= value <= _EXACT else {"i": str(value)}
    if kind is float:
        return {"f": _float_text(value)}
    if kind is complex:
        return {"c": [_float_text(value.real), _float_text(value.imag)]}
    return _numpy_scalar(value) or _torch_name(value)


def _numpy_scalar(value: Any) -> Node | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return None
    if value.dtype.hasobject or value.dtype.kind not in "biufc":
        return None
    little = value.dtype.newbyteorder("<")
    return {"n": [little.str, value.astype(little).tobytes().hex()]}


def _torch_name(value: Any) -> Node | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(value, torch.dtype):
        return {"o": ["dtype", str(value).removeprefix("torch.")]}
    if isinstance(value, torch.device):
        return {"o": ["device", str(value)]}
    if isinstance(value, torch.Size):
        return {"o": ["size", list(value)]}
    return None


def _float_text(value: float) -> str:
    if math.isnan(value):
        return struct.pack(">d", value).hex()
    return str(value) if math.isinf(value) else value.hex()


def _float_value(text: str) -> float:
    if len(text) == 16 and text.startswith(("7ff", "fff")):
        (value,) = struct.unpack(">d", bytes.fromhex(text))
        return float(value)
    return float(text) if "inf" in text else float.fromhex(text)


def unflatten(tree: Node, array: Callable[[int, str], Any]) -> Any:
    """Put a state together. `array(number, kind)` gives the arrays.

    Raises:
        InvalidArgumentError: The tree is none: a newer program wrote it, or it is damaged.
    """
    try:
        return _unflatten(tree, array, 0)
    except (KeyError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise InvalidArgumentError(
            f"the tree of this checkpoint cannot be read ({error}); a newer Headrace may have written it"
        ) from error


def _unflatten(node: Node, array: Callable[[int, str], Any], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deep")
    if "a" in node:
        return array(node["a"], node["as"])
    ((kind, content),) = node.items()
    if kind == "d":
        return {key: _unflatten(child, array, depth + 1) for key, child in content}
    if kind in ("l", "t"):
        children = [_unflatten(child, array, depth + 1) for child in content]
        return children if kind == "l" else tuple(children)
    return _READERS[kind](content)


def _read_numpy(content: list[str]) -> Any:
    import numpy

    return numpy.frombuffer(bytes.fromhex(content[1]), dtype=numpy.dtype(content[0]))[0]


def _read_torch(content: list[Any]) -> Any:
    import torch

    kind, value = content
    if kind == "dtype":
        dtype = getattr(torch, value)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"torch.{value} is no dtype")
        return dtype
    return torch.device(value) if kind == "device" else torch.Size(value)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "v": lambda content: content,
    "i": int,
    "f": _float_value,
    "c": lambda content: complex(_float_value(content[0]), _float_value(content[1])),
    "n": _read_numpy,
    "o": _read_torch,
}


def arrays_of(tree: Node) -> Iterator[tuple[Path, int, str]]:
    """Yield path, number and kind of each array of a tree."""
    stack: list[tuple[Path, Node]] = [((), tree)]
    while stack:
        path, node = stack.pop()
        if "a" in node:
            yield path, node["a"], node["as"]
        elif "d" in node:
            stack.extend(((*path, key), child) for key, child in reversed(node["d"]))
        else:
            children: list[Node] = node.get("l") or node.get("t") or []
            stack.extend(((*path, i), child) for i, child in reversed(list(enumerate(children))))
