"""Loaders that read through the cache of a node: the same batches, and what the origin is asked for."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import headrace


@pytest.fixture
def cached(tmp_path: Path) -> dict[str, str]:
    """Storage options with a cache of this test."""
    return {
        "cache_dir": str(tmp_path / "cache"),
        "cache_bytes": "64MiB",
        "cache_memory_bytes": "0",
    }


def shard_reads(server: Any) -> int:
    """The number of reads of shards that the server was asked for since the last call."""
    with server.lock:
        found = [name for method, name, _ in server.requests if method == "GET"]
        server.requests.clear()
    return sum(name.endswith(".tar") for name in found)


def epochs(ds: Any, count: int, **settings: Any) -> list[Any]:
    """Everything that a loader gives in some epochs."""
    with ds.loader(batch_size=16, seed=3, **settings) as loader:
        return [list(loader) for _ in range(count)]


def program(*arguments: object, code: int = 0) -> str:
    """Run the program; return what it printed and said."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=os.environ,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def has_all(cached: dict[str, str], ds: Any) -> bool:
    """Whether a cache has every shard of a set on its disk."""
    listed = program("cache", "ls", "--cache-dir", cached["cache_dir"])
    return all(name in listed for name, _, _ in ds.shards)


def test_batches_are_the_same_and_the_origin_is_read_once(
    served: str, server: Any, texts: Path, cached: dict[str, str]
) -> None:
    expected = epochs(headrace.open(texts), 3)
    ds = headrace.open(served, storage_options=cached)
    assert epochs(ds, 3) == expected
    assert shard_reads(server) == len(ds.shards), "each shard is one block here"
    assert epochs(headrace.open(served, storage_options=cached), 3) == expected
    assert shard_reads(server) == 0


def test_stats_say_what_the_cache_gave(
    served: str, server: Any, texts: Path, cached: dict[str, str]
) -> None:
    assert headrace.open(texts).loader(batch_size=16).stats()["cache"] is None
    ds = headrace.open(served, storage_options=cached)
    with ds.loader(batch_size=16) as loader:
        list(loader)
        first = loader.stats()["cache"]
        # What is on its way to the disk when an epoch begins is not there yet.
        while not has_all(cached, ds):
            time.sleep(0.01)
        list(loader)
        second = loader.stats()["cache"]
    size = sum(shard_bytes for _, _, shard_bytes in ds.shards)
    assert first["has_plan"]
    assert not first["keeps_all"]
    assert first["epoch"] == 0
    assert first["epoch_origin_bytes"] >= size
    assert second["epoch"] == 1
    assert second["epoch_origin_bytes"] == 0
    assert second["expected_origin_bytes"] in (0, None)
    assert second["disk_hits"] > first["disk_hits"]
    assert second["prefetch_request_limit"] >= 1
    assert second["unused_bytes"] == second["hedge_bytes"] == 0


def test_settings_change_while_it_reads(served: str, texts: Path, cached: dict[str, str]) -> None:
    expected = epochs(headrace.open(texts), 2)
    ds = headrace.open(served, storage_options=cached)
    with ds.loader(batch_size=16, seed=3, threads=1, max_threads=3) as loader:
        assert loader.settings["prefetch_bytes"] == (1 << 30, 0, 1 << 30)
        assert list(loader.settings) == [
            "threads",
            "prefetch_bytes",
            "prefetch_in_flight",
            "prefetch_requests",
        ]
        for epoch in expected:
            seen = []
            for batch in loader:
                seen.append(batch)
                loader.change_setting("threads", 1 + len(seen) % 3)
                loader.change_setting("prefetch_bytes", "1MiB" if len(seen) % 2 else 0)
                loader.change_setting("prefetch_requests", 1 + len(seen) % 32)
            assert seen == epoch
        with pytest.raises(headrace.InvalidArgumentError, match="prefetch_requests: expected 1"):
            loader.change_setting("prefetch_requests", 33)


def test_a_cold_start_is_refused_and_the_command_it_names_helps(
    served: str, server: Any, texts: Path, cached: dict[str, str]
) -> None:
    ds = headrace.open(served, storage_options=cached)
    settings = {"batch_size": 8, "seed": 5, "rank": 1, "world_size": 2, "require_warm": True}
    loader = ds.loader(**settings)
    with pytest.raises(headrace.StateError, match=r"require_warm: \d+ bytes of") as refused:
        iter(loader)
    command = re.search(r"`headrace (cache warm [^`]+)`", str(refused.value))
    assert command is not None
    said = json.loads(program(*shlex.split(command[1]), "--json", "--quiet"))
    assert said["objects"] > 0
    assert said["fetched_bytes"] == said["bytes"]
    assert json.loads(program(*shlex.split(command[1]), "--json", "--quiet"))["fetched_bytes"] == 0
    shard_reads(server)
    batches = list(ds.loader(**settings))
    local = headrace.open(texts).loader(batch_size=8, seed=5, rank=1, world_size=2)
    assert batches == list(local)
    assert shard_reads(server) == 0
    with pytest.raises(headrace.InvalidArgumentError, match="require_warm"):
        headrace.open(texts).loader(batch_size=8, require_warm=True)


def test_warm_brings_a_whole_set(served: str, server: Any, cached: dict[str, str]) -> None:
    options = ("--cache-dir", cached["cache_dir"], "--cache-bytes", cached["cache_bytes"])
    said = program("cache", "warm", served, *options)
    assert "are in the cache" in said
    shard_reads(server)
    list(headrace.open(served, storage_options=cached))
    assert shard_reads(server) == 0


def test_warm_says_what_it_cannot_do(
    served: str, texts: Path, cached: dict[str, str], tmp_path: Path
) -> None:
    options = ("--cache-dir", cached["cache_dir"])
    assert "needs no cache" in program("cache", "warm", texts, *options, code=2)
    assert "warm what" in program("cache", "warm", *options, code=2)
    assert "--ranks" in program("cache", "warm", served, *options, "--ranks", "7", code=2)
    small = ("--cache-dir", tmp_path / "small", "--cache-bytes", "100KiB")
    assert "do not fit" in program("cache", "warm", served, *small, code=3)


def test_warm_is_interrupted_and_goes_on(served: str, server: Any, cached: dict[str, str]) -> None:
    command = [sys.executable, "-m", "headrace", "cache", "warm", served]
    command += ["--cache-dir", cached["cache_dir"], "--cache-bytes", cached["cache_bytes"]]
    server.failures = 1_000_000
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as warming:
        while not server.requests:
            time.sleep(0.01)
        warming.send_signal(signal.SIGINT)
        warming.communicate(timeout=240)
    assert warming.returncode == 130
    server.failures = 0
    said = json.loads(program(*command[3:], "--json", "--quiet"))
    assert said["fetched_bytes"] == said["bytes"] > 0
    assert json.loads(program(*command[3:], "--json", "--quiet"))["fetched_bytes"] == 0


def test_jumps_and_resumes_are_exact(served: str, texts: Path, cached: dict[str, str]) -> None:
    cached["cache_bytes"] = "300KiB"  # less than the set
    loaders = [
        headrace.open(texts).loader(batch_size=16, seed=9),
        headrace.open(served, storage_options=cached).loader(batch_size=16, seed=9),
    ]
    seen = []
    for loader in loaders:
        with loader:
            loader.set_epoch(2)
            given = iter(loader)
            batches = [next(given) for _ in range(3)]
            state = loader.state_dict()
            loader.set_epoch(0)
            batches += [next(iter(loader))]
            loader.load_state_dict(state)
            batches += list(loader)
            seen.append(batches)
    assert seen[0] == seen[1]


def test_settings_that_make_no_sense_are_refused(texts: Path) -> None:
    ds = headrace.open(texts)
    with pytest.raises(headrace.InvalidArgumentError, match="prefetch_bytes"):
        ds.loader(batch_size=8, prefetch_bytes="many")
    with pytest.raises(headrace.InvalidArgumentError, match="prefetch_requests"):
        ds.loader(batch_size=8, prefetch_requests=-1)
