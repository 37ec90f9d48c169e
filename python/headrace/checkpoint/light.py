"""Light saves: a part of the state often, all of it seldom.

A light checkpoint holds what lies at some paths (``/model``). Restoring it takes the rest from the newest
full checkpoint before it: parameters are then newer than, say, the optimizer's moments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.checkpoint.arrays import View
from headrace.checkpoint.document import Document
from headrace.checkpoint.tree import arrays_of, path_text
from headrace.errors import HeadraceError, InvalidArgumentError

if TYPE_CHECKING:
    from headrace.checkpoint.handle import SaveHandle

Kind = Literal["full", "light"]

# A light save that costs more than this share of a full one is not worth its older optimizer state.
_WORTH = 0.7
_REMEMBERED = 32


def below(path: str, paths: Sequence[str]) -> bool:
    """Whether a path is one of `paths` or lies below one."""
    return any(path == one or path.startswith(one + "/") for one in paths)


def _keys(path: str) -> list[str]:
    if not path.startswith("/"):
        raise InvalidArgumentError(f"{path!r} is no path in a state: expected one such as '/model'")
    return [key.replace("~1", "/").replace("~0", "~") for key in path[1:].split("/")]


def _step_down(node: Any, key: str, path: str) -> tuple[Any, Any]:
    """The key as the dict has it, and the value."""
    if isinstance(node, Mapping):
        for own in (key, int(key) if key.isdigit() else key):
            if own in node:
                return own, node[own]
    raise InvalidArgumentError(f"the state has nothing at {path}")


def select(state: Any, paths: Sequence[str]) -> dict[Any, Any]:
    """Return the part of a state at `paths`, in dicts as they are in the state.

    Raises:
        InvalidArgumentError: Nothing is there, or what is above it are not all dicts.
    """
    picked: dict[Any, Any] = {}
    for path in paths:
        node, target = state, picked
        keys = _keys(path)
        for place, key in enumerate(keys):
            own, node = _step_down(node, key, path)
            if place + 1 == len(keys):
                target[own] = node
            else:
                target = target.setdefault(own, {})
    return picked


def at_path(state: Any, path: str) -> Any:
    """Return what a state has at a path; "" is all of it. Raises as select()."""
    node = state
    for key in _keys(path) if path else []:
        node = _step_down(node, key, path)[1]
    return node


def put(state: Any, part: Any, paths: Sequence[str]) -> Any:
    """Put what `part` has at `paths` into `state`, whose dicts are changed; returns it."""
    for path in paths:
        node, source = state, part
        keys = _keys(path)
        for key in keys[:-1]:
            own, source = _step_down(source, key, path)
            node = node.setdefault(own, {})
        own, source = _step_down(source, keys[-1], path)
        node[own] = source
    return state


def replaced_paths(document: Document, paths: Sequence[str]) -> set[str]:
    """Paths of stored arrays at `paths` that nothing elsewhere is a view of: no need to read them."""
    needed: set[int] = set()
    at: dict[int, str] = {}
    for path, number, _ in arrays_of(document.state):
        at[number] = path_text(path)
        array = document.arrays[number]
        if isinstance(array, View) and not below(at[number], paths):
            needed.add(array.base)
    return {
        path
        for number, path in at.items()
        if number not in needed
        and not isinstance(document.arrays[number], View)
        and below(path, paths)
    }


@dataclass(slots=True)
class _Save:
    """A save that was made: its handle until it has ended, then its report, if it ended well."""

    kind: Kind
    step: int
    handle: SaveHandle | None
    report: dict[str, Any] | None = None


class SavePolicy:
    """Which saves are light, and what each kind has cost. One thread."""

    def __init__(self, paths: Sequence[str], full_every: int) -> None:
        if full_every < 1:
            raise InvalidArgumentError(f"full_every must be at least 1, not {full_every}")
        if full_every > 1 and not paths:
            raise InvalidArgumentError("full_every needs light=[path, ...]: what light saves hold")
        for path in paths:
            _keys(path)
        self.paths = tuple(paths)
        self._full_every = full_every
        self._since_full: int | None = None  # saves since the last full one; None: there was none
        self._saves: deque[_Save] = deque(maxlen=_REMEMBERED)
        self.warned = False

    def next_kind(self) -> Kind:
        """Of the next save: the first of a process is always full."""
        if self._since_full is None or self._since_full + 1 >= self._full_every:
            return "full"
        return "light"

    def saved(self, kind: Kind, handle: SaveHandle) -> None:
        """Count a save."""
        if kind == "full":
            self._since_full = 0
        elif self._since_full is not None:
            self._since_full += 1
        self._saves.append(_Save(kind, handle.step, handle))

    def let_go(self) -> None:
        """Forget the handles, which hold memory; what is not known by then is not told."""
        self._settle()
        for save in self._saves:
            save.handle = None

    def _settle(self) -> None:
        for save in self._saves:
            if save.handle is None:
                continue
            try:
                if save.handle.done():
                    save.report, save.handle = save.handle.wait(), None
            except HeadraceError:
                save.handle = None

    def costs(self) -> dict[str, Any]:
        """As Checkpointer.costs()."""
        self._settle()
        rows = [(save.kind, save.step, save.report) for save in self._saves if save.report]
        costs: dict[str, Any] = {}
        for kind in ("full", "light"):
            reports = [report for own, _, report in rows if own == kind]
            if reports:
                costs[kind] = _means(reports)
        steps = [step for _, step, _ in rows]
        if len(rows) > 1 and max(steps) > min(steps):
            # The first save lies before the steps that are counted.
            apart = max(steps) - min(steps)
            costs["per_step"] = {
                name: sum(report.get(name, 0) for _, _, report in rows[1:]) / apart
                for name in ("stall_s", "written_bytes")
            }
        costs["warning"] = self._warning(costs)
        return costs

    def _warning(self, costs: dict[str, Any]) -> str:
        if "full" not in costs or "light" not in costs:
            return ""
        full, light = costs["full"], costs["light"]
        written = light["written_bytes"] / max(full["written_bytes"], 1)
        stall = light["stall_s"] / max(full["stall_s"], 1e-9)
        if written < _WORTH or stall < _WORTH:
            return ""
        return (
            f"light saves write {written:.0%} of what full ones write and stall {stall:.0%} as long: "
            "they do not pay for their older optimizer state; save all (full_every=1)"
        )


def _means(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    means: dict[str, Any] = {
        name: sum(report.get(name, 0) for report in reports) / len(reports)
        for name in ("stall_s", "bytes", "written_bytes", "reused_bytes")
    }
    means["background_s"] = sum(
        report.get(name, 0)
        for report in reports
        for name in ("hash_s", "write_s", "sync_s", "publish_s")
    ) / len(reports)
    means["saves"] = len(reports)
    return means
