"""Datasets at a URL without a cache directory: loaders read whole blocks by plan, into memory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import pytest

import headrace

SAMPLES, SAMPLE_BYTES, SHARD_SAMPLES = 160, 60_000, 80
BLOCK_BYTES = 4 << 20
EDGE_BYTES = 4096  # of each end of a shard, which are looked at when it is first opened


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory, run_headrace: Callable[..., str]) -> Path:
    """A packed dataset of random bytes: two shards of two blocks each."""
    root = tmp_path_factory.mktemp("blobs-source")
    draw = random.Random(3)
    for number in range(SAMPLES):
        (root / f"{number:04}.bin").write_bytes(draw.randbytes(SAMPLE_BYTES))
    target = tmp_path_factory.mktemp("packed") / "blobs.hr"
    run_headrace("pack", root, target, "--shard-samples", str(SHARD_SAMPLES), "--quiet")
    return target


@pytest.fixture
def url(server: Any, blobs: Path) -> str:
    """Where ``blobs`` is served."""
    os.symlink(blobs, server.root / "blobs")
    return f"{server.url}/blobs"


def shard_reads(server: Any) -> list[int]:
    """The lengths of the reads of shards that the server was asked for since the last call."""
    with server.lock:
        found = [(name, part) for method, name, part in server.requests if method == "GET"]
        server.requests.clear()
    lengths = []
    for name, part in found:
        if name.endswith(".tar"):
            begin, end = part.removeprefix("bytes=").split("-")
            lengths.append(int(end) - int(begin) + 1)
    return lengths


def epoch(ds: Any, **settings: Any) -> list[Any]:
    """Everything that a loader gives in one epoch."""
    with ds.loader(batch_size=16, seed=3, **settings) as loader:
        return list(loader)


def shard_bytes(ds: Any) -> int:
    """The bytes of all shards."""
    return sum(size for _, _, size in ds.shards)


def test_a_loader_asks_for_blocks_and_not_for_samples(url: str, server: Any, blobs: Path) -> None:
    ds = headrace.open(url)
    assert len(ds.shards) == SAMPLES // SHARD_SAMPLES
    with ds.loader(batch_size=16, seed=3) as loader:
        assert list(loader) == epoch(headrace.open(blobs))
        reads = shard_reads(server)
        list(loader)
        stats = loader.stats()["cache"]
    blocks = sum(-(-size // BLOCK_BYTES) for _, _, size in ds.shards)
    assert 0 < len([length for length in reads if length > EDGE_BYTES]) <= blocks
    assert sum(reads) <= 1.02 * shard_bytes(ds)
    assert shard_reads(server) == [], "the next epoch finds all of it in memory"
    assert stats["in_memory"] and stats["has_plan"]
    assert stats["memory_hits"] > 0
    assert stats["streamed_bytes"] == stats["hedge_bytes"] == 0
    assert stats["origin_bytes"] <= shard_bytes(ds)
    assert stats["expected_origin_bytes"] == stats["epoch_bytes"] == shard_bytes(ds)


@pytest.mark.parametrize("where", ["option", "environment"])
def test_without_memory_each_sample_is_a_request(
    url: str, server: Any, blobs: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"cache_memory_bytes": 0} if where == "option" else {}
    if where == "environment":
        monkeypatch.setenv("HEADRACE_CACHE_MEMORY_BYTES", "0")
    ds = headrace.open(url, storage_options=options)
    with ds.loader(batch_size=16, seed=3) as loader:
        assert list(loader) == epoch(headrace.open(blobs))
        assert loader.stats()["cache"] is None
    reads = [length for length in shard_reads(server) if length > EDGE_BYTES]
    assert len(reads) >= SAMPLES
    assert set(reads) == {SAMPLE_BYTES}


def test_what_memory_does_not_hold_is_read_sample_by_sample(
    url: str, server: Any, blobs: Path
) -> None:
    ds = headrace.open(url, storage_options={"cache_memory_bytes": "6MiB"})  # one of two shards
    with ds.loader(batch_size=16, seed=3) as loader:
        assert list(loader) == epoch(headrace.open(blobs))
        stats = loader.stats()["cache"]
    reads = [length for length in shard_reads(server) if length > EDGE_BYTES]
    assert SAMPLE_BYTES in reads
    assert max(reads) > SAMPLE_BYTES
    assert stats["streamed_bytes"] >= SAMPLE_BYTES * SHARD_SAMPLES


def test_ranks_read_their_own_shards_once(url: str, server: Any, blobs: Path) -> None:
    ds, local = headrace.open(url), headrace.open(blobs)
    for rank in (0, 1):
        settings = {"rank": rank, "world_size": 2, "lanes": 2}
        assert epoch(ds, **settings) == epoch(local, **settings)
    assert sum(shard_reads(server)) <= 1.02 * shard_bytes(ds)
    # Both read all shards, and only their own samples of them.
    for rank in (0, 1):
        settings = {"rank": rank, "world_size": 2, "lanes": 1}
        assert epoch(ds, **settings) == epoch(local, **settings)
    assert max(shard_reads(server)) <= SAMPLE_BYTES


def test_samples_asked_for_by_number_are_read_as_they_are(url: str, server: Any) -> None:
    ds = headrace.open(url)
    ds[5]
    shard_reads(server)
    for _ in range(2):
        ds[6]
        assert shard_reads(server) == [SAMPLE_BYTES]


def train_elsewhere(ds: Any, answers: Any) -> None:
    """Read an epoch and send its keys home."""
    answers.put([batch["__key__"] for batch in epoch(ds)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_has_memory_of_its_own(url: str, method: str) -> None:
    ds = headrace.open(url)
    expected = [batch["__key__"] for batch in epoch(ds)]
    found = children.answers_of(method, train_elsewhere, [(ds,)] * 2)
    assert found == [expected, expected]
    assert [batch["__key__"] for batch in epoch(ds)] == expected


def test_there_is_nothing_that_could_be_warm(url: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="require_warm"):
        headrace.open(url).loader(batch_size=16, require_warm=True)
