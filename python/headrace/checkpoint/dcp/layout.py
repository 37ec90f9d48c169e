"""How a checkpoint that DCP makes lies in a store.

A tensor's path in the manifest is its path in the state, as the planner's mapping has it: then the
data files are named as ``Checkpointer`` names them. Where a planner has no such mapping the name is
the only key. What is no tensor comes from the planner as a stream of ``torch.save``; numbers,
strings and the like are put into the tree, so that any program can read them, and the rest are
bytes. The document of rank 0 has, beside what document.py says::

    "dcp": {"names": [[name, path], ...], "planner": null | "names" | base64 of torch.save}
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.checkpoint.tree import Flat, Node, Path, flatten, path_text
from headrace.errors import InvalidArgumentError

_PLAIN = (type(None), bool, int, float, str, complex)


def step_of(checkpoint_id: str | int | os.PathLike[str]) -> int:
    """Return the step that an id of DCP names: the last number of its last part.

    Raises:
        InvalidArgumentError: it has none.
    """
    text = str(checkpoint_id)
    numbers = re.findall(r"\d+", text.rstrip("/").rpartition("/")[2])
    if not numbers:
        raise InvalidArgumentError(
            f"the checkpoint_id {text!r} names no step: let it end with a number, as in 'step-400'"
        )
    return int(numbers[-1])


@dataclass(slots=True)
class Written:
    """What a rank tells the coordinator of one item: picklable, and small."""

    path: Path
    dtype: str | None  # PyTorch's name, "bytes", or None: `node` is all there is
    node: Node | None = None


def path_of(name: str, planner_data: Any) -> Path:
    """Return the path of a name in the state."""
    path: Any = planner_data.get(name) if isinstance(planner_data, Mapping) else None
    return tuple(path) if _is_path(path) else (name,)


def _is_path(path: Any) -> bool:
    return (
        isinstance(path, (tuple, list))
        and len(path) > 0
        and all(type(key) in (str, int) for key in path)
    )


def plain_node(stream: bytes) -> Node | None:
    """Return the node of what torch.save wrote, where it is plain; else None."""
    import torch

    try:
        value = torch.load(io.BytesIO(stream), weights_only=True)
    except Exception:  # of another planner, or not plain
        return None
    return flatten(value).tree if _is_plain(value, 0) else None


def _is_plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if depth > 20:
        return False
    if kind in (list, tuple):
        return all(_is_plain(child, depth + 1) for child in value)
    if kind is dict:
        keys = {str(key) for key in value if type(key) in (str, int)}
        return len(keys) == len(value) and all(
            _is_plain(child, depth + 1) for child in value.values()
        )
    return False


def encode_document(written: Mapping[str, Written], planner_data: Any) -> bytes:
    """Write the document of all items, by name.

    Raises:
        InvalidArgumentError: a name lies inside another one that is a value.
    """
    flat = Flat()
    arrays: list[dict[str, Any]] = []
    leaves: list[tuple[Path, Node]] = []
    for one in written.values():
        if one.dtype is None:
            leaves.append((one.path, one.node or {"v": None}))
            continue
        kind = "bytes" if one.dtype == "bytes" else "torch"
        leaves.append((one.path, {"a": len(arrays), "as": kind}))
        arrays.append({"p": path_text(one.path), "d": "uint8" if kind == "bytes" else one.dtype})
    flat.tree = _tree(leaves)
    names = [[name, list(one.path)] for name, one in written.items()]
    document = {
        "format": 1,
        "state": flat.tree,
        "arrays": arrays,
        "dcp": {"names": names, "planner": _planner_text(planner_data, names)},
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _tree(leaves: Sequence[tuple[Path, Node]]) -> Node:
    root: dict[str | int, Any] = {}
    for path, node in leaves:
        at = root
        for key in path[:-1]:
            inside = at.setdefault(key, {})
            if isinstance(inside, _Leaf):
                raise InvalidArgumentError(f"{path_text(path)} lies inside a value of the state")
            at = inside
        if path[-1] in at:
            raise InvalidArgumentError(f"{path_text(path)} is there twice")
        at[path[-1]] = _Leaf(node)
    return _node(root)


@dataclass(slots=True)
class _Leaf:
    node: Node


def _node(inner: dict[str | int, Any]) -> Node:
    items = [
        (key, child.node if isinstance(child, _Leaf) else _node(child))
        for key, child in inner.items()
    ]
    # Planners write keys of dicts as strings, and indexes of lists as integers.
    if items and sorted(map(repr, inner)) == sorted(map(repr, range(len(items)))):
        return {"l": [node for _, node in sorted(items, key=lambda item: item[0])]}
    return {"d": [[key, node] for key, node in items]}


def _planner_text(planner_data: Any, names: list[list[Any]]) -> str | None:
    if planner_data is None:
        return None
    if isinstance(planner_data, Mapping) and all(map(_is_path, planner_data.values())):
        given = sorted([name, list(path)] for name, path in planner_data.items())
        if given == sorted(names):
            return "names"
    import torch

    stream = io.BytesIO()
    torch.save(planner_data, stream)
    return base64.b64encode(stream.getvalue()).decode()


def planner_data_of(dcp: Mapping[str, Any]) -> Any:
    """Return what the planner had put into the metadata.

    Raises:
        pickle.UnpicklingError: objects that are not loaded from a file that might be foreign.
    """
    text = dcp["planner"]
    if text is None:
        return None
    if text == "names":
        return {name: tuple(path) for name, path in dcp["names"]}
    import torch

    return torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)
