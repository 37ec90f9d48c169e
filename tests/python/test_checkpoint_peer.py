"""The peer tier: another node's disk, between the folders of this one and the destination."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import local
import pytest
import torch

import headrace
from headrace.checkpoint import Checkpointer

sys.path.insert(0, str(Path(__file__).parent))
from checkpoint_places import LONG_S, end_helpers, make_state, same, wait_until

TOKEN = "a token for tests, long enough"
PROGRAM = [sys.executable, "-m", "headrace"]


class Peer:
    """`headrace ckpt serve` in a process of its own."""

    def __init__(self, folder: Path, size: str, token_file: Path | None) -> None:
        self._folder, self._size, self._token_file = folder, size, token_file
        self._listen = f"127.0.0.1:{local.free_ports(1)[0]}"
        self.start()

    def start(self) -> None:
        """Listen; again at the same address after an end."""
        arguments = ["--listen", self._listen, "--size", self._size, "--json"]
        if self._token_file is not None:
            arguments += ["--token-file", str(self._token_file)]
        self.process = subprocess.Popen(
            [*PROGRAM, "ckpt", "serve", str(self._folder), *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        lines = []
        while not lines or lines[-1].rstrip() != "}":
            lines.append(self.process.stdout.readline())
            assert lines[-1], "the peer ended before it listened"
        self.url = json.loads("".join(lines))["url"]

    def end(self, how: int = signal.SIGTERM) -> int:
        """End it; returns its exit code."""
        self.process.send_signal(how)
        code = self.process.wait(LONG_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def serving(folder: Path, size: str = "1GiB", token_file: Path | None = None) -> Iterator[Peer]:
    """A peer that keeps what it is given in a folder."""
    peer = Peer(folder, size, token_file)
    try:
        yield peer
    finally:
        if peer.process.poll() is None:
            peer.end(signal.SIGKILL)


@pytest.fixture(autouse=True)
def _helpers_end_with_the_test(tmp_path: Path) -> Iterator[None]:
    yield
    end_helpers(tmp_path)


class Node:
    """A node with a disk of its own; the destination is everybody's."""

    def __init__(self, folder: Path, name: str, peer: str, **options: Any) -> None:
        self.disk, self.far = folder / name / "run", folder / "far" / "run"
        self.url, self.options = f"{peer}/run", options

    def open(self, **options: Any) -> Checkpointer:
        """A checkpointer of this node."""
        return Checkpointer(
            self.far,
            tiers=["memory", self.disk, self.url],
            linger=2 * LONG_S,
            **{"keep": 0, **self.options, **options},
        )


def block_destination(node: Node) -> None:
    """Nothing can be written to the destination from now on, though it can be read."""
    (node.far / "data").mkdir(parents=True, exist_ok=True)
    shutil.rmtree(node.far / "data")
    (node.far / "data").write_text("no folder")


def drain_error(checkpointer: Checkpointer) -> str:
    """Why the last try of the drain to the peer failed."""
    return str(checkpointer.drain_progress()["peer"]["last_error"] or "")


def test_another_node_goes_on_with_what_the_peer_has(
    tmp_path: Path, run_headrace: Callable[..., str]
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    options = {"storage_options": {"peer_token_file": token_file}}
    with serving(tmp_path / "kept", token_file=token_file) as peer:
        lost = Node(tmp_path, "a", peer.url, **options)
        state = make_state(7)
        checkpointer = lost.open()
        checkpointer.save(1, make_state(1), wait="remote", timeout=LONG_S)
        block_destination(lost)
        handle = checkpointer.save(2, state, wait="peer", timeout=LONG_S)
        assert handle.done("peer") and not handle.done("remote")
        progress = checkpointer.drain_progress()
        assert progress["peer"]["drained"] == 2 and progress["drained"] == 1
        environment = os.environ | {"HEADRACE_PEER_TOKEN": TOKEN}
        told = subprocess.run(
            [*PROGRAM, "ckpt", "explain", str(lost.disk), "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        explained = json.loads(told.stdout)
        assert explained["newest_after_loss_of"] == {
            "process": 2,
            "memory": 2,
            "node": 2,
            "node_and_peer": 1,
        }
        assert explained["lost_with_node"] == []
        assert explained["lost_with_node_and_peer"] == [2]
        assert TOKEN not in told.stdout
        assert TOKEN not in (lost.disk / "tiers.json").read_text()
        # The node is lost: its processes, its memory and its disk.
        end_helpers(tmp_path)
        del checkpointer, handle
        shutil.rmtree(lost.disk)
        found = Node(tmp_path, "b", peer.url, **options).open()
        restored = found.restore()
        assert same(restored, state)
        assert found.restored is not None
        assert found.restored["step"] == 2
        came_from = found.restored["from"]
        assert came_from["peer"] > 0
        assert came_from["local"] == came_from["remote"] == came_from.get("memory", 0) == 0
        assert [entry["level"] for entry in found.list()] == ["remote", "peer"]
        # What the peer gives is checked: damage there is found, and nobody else has it.
        damaged = sorted((tmp_path / "kept" / "run" / "data").glob("*.safetensors"))
        for file in damaged:
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            file.write_bytes(content)
        with pytest.raises(headrace.HeadraceError, match=r"peer://127\.0\.0\.1"):
            found.restore()
        assert peer.end() == 0


def test_the_peer_dies_in_the_midst_and_comes_back(tmp_path: Path) -> None:
    with serving(tmp_path / "kept") as peer:
        node = Node(tmp_path, "a", peer.url)
        large = {"weights": torch.arange(5_000_000, dtype=torch.int32)}
        # So slow that it does not come to its end here.
        checkpointer = node.open(drain_limit="500kB")
        checkpointer.save(1, large)
        wait_until(
            lambda: checkpointer.drain_progress()["peer"]["sent_bytes"] > 0,
            "the first bytes on their way to the peer",
        )
        peer.end(signal.SIGKILL)
        end_helpers(tmp_path)
        del checkpointer
        with node.open() as checkpointer:
            checkpointer.save(2, make_state(2), wait="remote", timeout=LONG_S)
            assert checkpointer.latest("remote") == 2
            wait_until(lambda: peer.url in drain_error(checkpointer), "the failure that names it")
            peer.start()

            def has_all() -> bool:
                told = checkpointer.drain_progress()["peer"]
                at_work = told["now"] or told["waiting"] or told["last_error"]
                return told["drained"] >= 1 and not at_work

            wait_until(has_all, "the drain to the peer that is back")
        end_helpers(tmp_path)
        shutil.rmtree(node.disk)
        shutil.rmtree(node.far)
        found = Node(tmp_path, "b", peer.url).open()
        assert same(found.restore(), make_state(2))
        assert torch.equal(found.restore(1)["weights"], large["weights"])


def test_a_peer_that_is_gone_full_or_does_not_know_us_costs_nothing(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    with serving(tmp_path / "kept", "64KiB", token_file) as peer:
        options = {"storage_options": {"peer_token_file": token_file}}
        state = {"weights": torch.arange(100_000)}
        with Node(tmp_path, "full", peer.url, **options).open() as checkpointer:
            checkpointer.save(1, state, wait="remote", timeout=LONG_S)
            wait_until(lambda: "is full" in drain_error(checkpointer), "a peer that is full")
            assert peer.url in drain_error(checkpointer)
        with Node(tmp_path, "stranger", peer.url).open() as checkpointer:
            checkpointer.save(2, state, wait="remote", timeout=LONG_S)
            wait_until(lambda: "wants a token" in drain_error(checkpointer), "a peer that refuses")
        peer.end(signal.SIGKILL)
        with Node(tmp_path, "alone", peer.url, **options).open() as checkpointer:
            checkpointer.save(3, state, wait="remote", timeout=LONG_S)
            wait_until(lambda: peer.url in drain_error(checkpointer), "a peer that is gone")
            assert torch.equal(checkpointer.restore()["weights"], state["weights"])
            assert [entry["step"] for entry in checkpointer.list()] == [1, 2, 3]


def test_a_peer_can_be_the_destination(tmp_path: Path) -> None:
    with serving(tmp_path / "kept") as peer:
        url = f"{peer.url}/run"
        with Checkpointer(url, tiers=["memory", tmp_path / "a" / "run"]) as checkpointer:
            checkpointer.save(1, make_state(1), wait="peer", timeout=LONG_S)
            with pytest.raises(headrace.InvalidArgumentError, match="reaches 'peer'"):
                checkpointer.save(2, make_state(2), wait="remote")
        assert same(Checkpointer(url).restore(), make_state(1))


@pytest.mark.parametrize(
    ("tiers", "why"),
    [
        (["memory", "peer://127.0.0.1:1/run"], "behind a folder"),
        (["memory", "peer://127.0.0.1:1/run", "DISK"], "behind all folders"),
        (["memory", "DISK", "peer://node7:1/run"], "numeric address"),
        (["memory", "DISK", "tcp://127.0.0.1:1"], "peer://ADDRESS:PORT"),
    ],
)
def test_tiers_that_cannot_be(tmp_path: Path, tiers: list[str], why: str) -> None:
    tiers = [str(tmp_path / "disk") if tier == "DISK" else tier for tier in tiers]
    with pytest.raises(headrace.InvalidArgumentError, match=why):
        Checkpointer(tmp_path / "run", tiers=tiers)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--listen", "0.0.0.0:0", "--size", "1GiB"], "give a token"),
        (["--listen", "127.0.0.1:0"], "--size"),
        (["--listen", "somewhere", "--size", "1GiB"], "ADDRESS:PORT"),
        (["--listen", "127.0.0.1:0", "--size", "1GiB", "--token-file", "SHORT"], "16 characters"),
    ],
)
def test_what_does_not_serve(tmp_path: Path, arguments: list[str], why: str) -> None:
    short = tmp_path / "short"
    short.write_text("short\n")
    arguments = [str(short) if one == "SHORT" else one for one in arguments]
    done = subprocess.run(
        [*PROGRAM, "ckpt", "serve", str(tmp_path / "kept"), *arguments],
        capture_output=True,
        text=True,
        timeout=LONG_S,
    )
    assert done.returncode != 0
    assert why in done.stderr
