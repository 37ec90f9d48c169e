"""The JSON document that a checkpoint keeps beside its tensors: the state's tree, and what each
array of it is.

``{"format": 1, "state": NODE, "arrays": [ARRAY, ...]}``, with the nodes of tree.py. An array is
``{"p": path, "d": element type}``, or a view into another one:
``{"v": [base, offset in bytes, element type, shape, strides]}``. Of a light checkpoint there is also
``"light": [path, ...]``: what of the state it holds; the rest lies in the full one before it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.checkpoint.arrays import Described, View
from headrace.checkpoint.tree import Flat, Node, path_text
from headrace.errors import DataLossError, StateError

_FORMAT = 1


@dataclass(slots=True)
class Stored:
    """An array that has bytes of its own: its path in the manifest, and PyTorch's name of its type."""

    path: str
    dtype: str


@dataclass(slots=True)
class Document:
    """A document that was read."""

    state: Node
    arrays: list[Stored | View]
    light: list[str] = field(default_factory=list)


def encode(flat: Flat, described: Described, light: Sequence[str] = ()) -> bytes:
    """Write the document of a state."""
    return join(flat.tree, arrays_text(flat, described), light)


def arrays_text(flat: Flat, described: Described) -> str:
    """Write what a document says of its arrays."""
    arrays: list[dict[str, Any]] = []
    for number, source in enumerate(described.sources):
        if source is not None:
            arrays.append({"p": path_text(flat.paths[number]), "d": source.dtype})
            continue
        view = described.views[number]
        arrays.append({"v": [view.base, view.offset_bytes, view.dtype, view.shape, view.strides]})
    return json.dumps(arrays, separators=(",", ":"))


def join(tree: Node, arrays: str, light: Sequence[str] = ()) -> bytes:
    """Write a document, of whose arrays the text is known."""
    text = json.dumps({"format": _FORMAT, "state": tree}, separators=(",", ":"))
    paths = f',"light":{json.dumps(list(light), separators=(",", ":"))}' if light else ""
    return f'{text[:-1]},"arrays":{arrays}{paths}}}'.encode()


def decode(text: bytes, name: str) -> Document:
    """Read a document; `name` is for messages.

    Raises:
        StateError: A newer program wrote it.
        DataLossError: It is none.
    """
    try:
        document = json.loads(text)
        if document["format"] != _FORMAT:
            raise StateError(f"{name} was written by a newer Headrace: update this one")
        arrays: list[Stored | View] = []
        for array in document["arrays"]:
            if "p" in array:
                arrays.append(Stored(array["p"], array["d"]))
            else:
                base, offset, dtype, shape, strides = array["v"]
                arrays.append(View(base, offset, dtype, tuple(shape), tuple(strides)))
        light = document.get("light", [])
        if not all(isinstance(path, str) for path in light):
            raise ValueError("light: expected paths")
        return Document(document["state"], arrays, light)
    except (ValueError, KeyError, TypeError) as error:
        raise DataLossError(f"the tree of {name} cannot be read: {error}") from error
