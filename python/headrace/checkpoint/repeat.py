"""What was worked out for one save, for the next one of the same state."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from headrace.checkpoint.arrays import Described, Source
from headrace.checkpoint.document import arrays_text, join
from headrace.checkpoint.tree import Flat, Node, is_mapping, scalar_node


class Repeat:
    """The plan of a state whose arrays are PyTorch tensors, whole, on the CPU and in C order.

    Training changes what is in the tensors; where they lie and the tree around them stay. Whether
    that is so is looked at for each save, without making an object for each tensor. It refers to none
    of them.
    """

    __slots__ = ("_arrays", "_light", "_root", "_seen", "_text", "_types", "addresses", "plan")

    def __init__(
        self,
        flat: Flat,
        described: Described,
        owned: Sequence[tuple[int, Source]],
        plan: Any,
        light: Sequence[str],
    ) -> None:
        import torch

        self._types = (torch.Tensor, torch.nn.Parameter)
        self._root: list[Node] = [flat.tree]
        self._seen = [(tensor.data_ptr(), tensor.dtype, tensor.shape) for tensor in flat.arrays]
        self._arrays = arrays_text(flat, described)
        self._light = tuple(light)
        self._text: bytes | None = None
        #: The save plan, and the address of each of its items.
        self.plan = plan
        self.addresses = array("Q", (source.address for _, source in owned))

    @staticmethod
    def of(
        flat: Flat,
        described: Described,
        owned: Sequence[tuple[int, Source]],
        plan: Any,
        light: Sequence[str],
    ) -> Repeat | None:
        """Return what is to be remembered of a save; None for states of another kind."""
        import sys

        torch = sys.modules.get("torch")
        if torch is None or described.views:
            return None
        types = (torch.Tensor, torch.nn.Parameter)
        plain = all(type(value) in types for value in flat.arrays) and all(
            source is not None and source.strided is None and source.box is None
            for source in described.sources
        )
        return Repeat(flat, described, owned, plan, light) if plain else None

    def fits(self, state: Any) -> bool:
        """Whether the state is the one that is remembered, but for what is in it."""
        try:
            return self._child_fits(self._root, 0, state)
        except RuntimeError:  # a tensor that has no memory of its own
            return False

    def text(self) -> bytes:
        """The document of the state that fitted last."""
        if self._text is None:
            self._text = join(self._root[0], self._arrays, self._light)
        return self._text

    def _child_fits(self, place: list[Any], at: int, value: Any) -> bool:
        node = place[at]
        if "a" in node:
            return self._is_same(node["a"], value)
        if "d" in node:
            return self._mapping_fits(node["d"], value)
        for name, kind in (("l", list), ("t", tuple)):
            if name in node:
                children = node[name]
                return (
                    type(value) is kind
                    and len(value) == len(children)
                    and all(self._child_fits(children, i, one) for i, one in enumerate(value))
                )
        found = scalar_node(value)
        if found is None:
            return False
        if found != node or type(found.get("v")) is not type(node.get("v")):
            place[at] = found
            self._text = None
        return True

    def _mapping_fits(self, items: list[Any], value: Any) -> bool:
        if not is_mapping(value) or len(value) != len(items):
            return False
        for item, (key, child) in zip(items, value.items(), strict=True):
            if item[0] != key or type(item[0]) is not type(key):
                return False
            if not self._child_fits(item, 1, child):
                return False
        return True

    def _is_same(self, number: int, value: Any) -> bool:
        address, dtype, shape = self._seen[number]
        return (
            type(value) in self._types
            and value.data_ptr() == address
            and value.dtype is dtype
            and value.shape == shape
            and value.is_contiguous()
            and value.is_cpu
            and not value.is_conj()
            and not value.is_neg()
        )
