"""Tiers of checkpoint stores in a test's folder, and the helper processes of these."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import headrace
from headrace import _native
from headrace.checkpoint import Checkpointer, helper

LONG_S = 120.0  # that a slow machine may take; nothing waits so long when all is well


def make_state(seed: int) -> dict[str, Any]:
    """A state of some files; different for each seed."""
    torch.manual_seed(seed)
    return {
        "model": {f"w{i}": torch.randn(1000 + i) for i in range(5)},
        "optimizer": {"m": torch.randn(3000).bfloat16(), "step": seed},
    }


def same(a: Any, b: Any) -> bool:
    """Whether two states of make_state are equal bit for bit."""
    return (
        a["optimizer"]["step"] == b["optimizer"]["step"]
        and torch.equal(a["optimizer"]["m"], b["optimizer"]["m"])
        and all(torch.equal(a["model"][name], b["model"][name]) for name in b["model"])
    )


class Places:
    """The tiers of one store in a folder of the test's."""

    def __init__(self, folder: Path) -> None:
        self.near = [folder / "disk0" / "run", folder / "disk1" / "run"]
        self.far = folder / "remote" / "run"

    def open(self, **options: Any) -> Checkpointer:
        """A checkpointer over all of them."""
        return Checkpointer(
            self.far, tiers=["memory", *self.near], linger=2 * LONG_S, **{"keep": 0, **options}
        )

    def helper_process(self) -> int | None:
        """The helper that runs, if any."""
        tiers = _native.CheckpointTiers.open(
            [str(folder) for folder in self.near], str(self.far), "remote", {}
        )
        try:
            told = json.loads(_native.CheckpointHelper.connect(tiers, 0).status())
        except headrace.HeadraceError:
            return None
        return int(told["process"])


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for something that comes sooner or later."""
    end = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.005)


def helpers_below(folder: Path) -> list[int]:
    """The helper processes of all stores in a folder, whoever started them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        inside = os.fsencode(folder) + b"/"
        if b"headrace.checkpoint.helper" in arguments and any(
            part.startswith(inside) for part in arguments
        ):
            found.append(int(entry.name))
    return found


def end_helpers(folder: Path) -> None:
    """Kill them, and wait until they are gone."""
    processes = helpers_below(folder)
    for process in processes:
        os.kill(process, signal.SIGKILL)
    for started in helper._STARTED:
        if started.pid in processes:
            started.wait(LONG_S)
    wait_until(lambda: not helpers_below(folder), "the end of killed helpers")
