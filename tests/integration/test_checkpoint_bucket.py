"""Checkpoints in a real bucket: saved, drained, restored, verified and pruned, also while it fails."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import counting_proxy
import program
import pytest
import torch

import headrace
from headrace.checkpoint import Checkpointer, helper

LONG_S = 240.0  # that a slow machine may take; nothing waits so long when all is well
FAULTS = (*counting_proxy.REFUSALS, "cut", "lost", "half")


def options_of(server: Any, endpoint: str) -> dict[str, str]:
    """What leads to the server, over an address of it."""
    return {
        "endpoint": endpoint,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
        "region": server.region,
        "dialect": server.dialect,
    }


@pytest.fixture
def options(server: Any) -> dict[str, str]:
    """What leads to the server."""
    return options_of(server, server.endpoint)


@pytest.fixture
def place(server: Any, request: pytest.FixtureRequest) -> str:
    """A fresh prefix in the bucket."""
    return f"s3://{server.buckets[0]}/{request.node.name}"


def make_state(seed: int, size: int = 50_000) -> dict[str, Any]:
    """A state with a part that is the same for all seeds."""
    torch.manual_seed(7)
    frozen = torch.randn(100_000)
    torch.manual_seed(seed)
    return {"model": {"frozen": frozen, "w": torch.randn(size)}, "step": seed}


def same(a: Any, b: Any) -> bool:
    """Whether two states of make_state are equal."""
    return a["step"] == b["step"] and all(
        torch.equal(a["model"][name], b["model"][name]) for name in b["model"]
    )


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for something that comes sooner or later."""
    end = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def tiered(*arguments: Any, **settings: Any) -> Iterator[Checkpointer]:
    """A checkpointer with tiers, whose helper has ended behind it."""
    try:
        with Checkpointer(*arguments, **settings) as checkpointer:
            yield checkpointer
        helper._STARTED[-1].wait(LONG_S)
    finally:
        for process in helper._STARTED:
            process.kill()
            process.wait(LONG_S)


def test_saved_to_a_bucket_and_back(
    server: Any, options: dict[str, str], place: str, tmp_path: Path
) -> None:
    with Checkpointer(place, keep=2, storage_options=options) as checkpointer:
        for step in (1, 2, 3):
            report = checkpointer.save(step, make_state(step)).wait("remote", LONG_S)
        assert report["reused_bytes"] == 400_000  # what is frozen
        checkpointer.prune()
        assert [entry["step"] for entry in checkpointer.list()] == [2, 3]
        assert checkpointer.latest("remote") == 3
        assert checkpointer.verify(2)["faults"] == []
    second = Checkpointer(place, storage_options=options)
    assert same(second.restore(2), make_state(2))
    assert same(second.restore(into=make_state(9)), make_state(3))
    second.save(4, make_state(4), wait="remote", timeout=LONG_S)
    with pytest.raises(headrace.StateError, match="taken over"):
        checkpointer.save(5, make_state(5), wait="remote", timeout=LONG_S)
    out, _ = program.run("ckpt", "ls", place, "--json", environment=server.environment())
    assert [row["step"] for row in json.loads(out)][-1] == 4
    program.run("ckpt", "verify", place, "--quiet", environment=server.environment())
    target = tmp_path / "model.safetensors"
    program.run("ckpt", "export", place, target, "--quiet", environment=server.environment())
    assert target.stat().st_size > 4 * 150_000


class EverySecondFails:
    """Every second request goes wrong, in each way in turn."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []  # method and fault
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, method: str, path: str) -> str:
        with self._lock:
            self._count += 1
            if self._count % 2 == 0:
                return ""
            fault = FAULTS[len(self.given) % len(FAULTS)]
            self.given.append((method, fault))
            return fault


def test_faults_of_every_kind_in_the_midst_of_a_drain(
    server: Any, options: dict[str, str], place: str, tmp_path: Path
) -> None:
    faults = EverySecondFails()
    sizes = {1: 50_000, 2: 50_000, 3: 6_000_000, 4: 50_000}  # one of them goes in parts
    with counting_proxy.running(server.endpoint) as proxy:
        proxy.fault = faults
        through = options_of(server, proxy.endpoint)
        settings = {"keep": 0, "arena_bytes": "64MiB", "storage_options": through}
        with tiered(place, tiers=["memory", tmp_path / "near"], **settings) as checkpointer:
            for step, size in sizes.items():
                checkpointer.save(step, make_state(step, size), wait="remote", timeout=LONG_S)
    assert {fault for _, fault in faults.given} == set(FAULTS)
    assert {method for method, _ in faults.given} >= {"GET", "HEAD", "PUT"}
    # What is there is whole, seen without what failed and without the near tier.
    found = Checkpointer(place, storage_options=options)
    assert [entry["step"] for entry in found.list()] == list(sizes)
    for step, size in sizes.items():
        assert same(found.restore(step), make_state(step, size))
        assert found.verify(step)["faults"] == []


def test_an_outage_delays_the_drain_and_nothing_else(
    server: Any, options: dict[str, str], place: str, tmp_path: Path
) -> None:
    is_down = False
    with counting_proxy.running(server.endpoint) as proxy:
        proxy.fault = lambda method, path: "503" if is_down else ""
        through = {**options_of(server, proxy.endpoint), "retry_budget": "300ms"}
        near = tmp_path / "near"
        with tiered(place, tiers=["memory", near], keep=0, storage_options=through) as checkpointer:
            checkpointer.save(1, make_state(1), wait="remote", timeout=LONG_S)
            is_down = True
            handle = checkpointer.save(2, make_state(2), wait="local", timeout=LONG_S)
            wait_until(
                lambda: checkpointer.drain_progress()["last_error"] is not None, "a failed drain"
            )
            assert not handle.done("remote")
            # A step that is still draining is restored from what is near.
            assert same(checkpointer.restore(), make_state(2))
            assert checkpointer.latest("local") == 2
            # The next save does not wait for the bucket either.
            checkpointer.save(3, make_state(3), wait="local", timeout=LONG_S)
            is_down = False
            handle.wait("remote", LONG_S)
            checkpointer.save(4, make_state(4), wait="remote", timeout=LONG_S)
    found = Checkpointer(place, storage_options=options)
    assert [entry["step"] for entry in found.list()] == [1, 2, 3, 4]
    assert same(found.restore(), make_state(4))
