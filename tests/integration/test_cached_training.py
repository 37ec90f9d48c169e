"""Four nodes that train from a real bucket, each with a cache of its own, at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import program
import pytest

import headrace

WORLD = 4
EPOCHS = 3
SHARDS, SHARD_SAMPLES = 32, 32

# What a node runs: its batches' keys, and what the cache says.
NODE = """
import json, sys
import headrace

url, cache, rank, world, epochs = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
ds = headrace.open(url, storage_options={
    "dialect": "seaweedfs", "cache_dir": cache, "cache_bytes": sys.argv[6], "cache_memory_bytes": 0})
seen, stats = [], []
with ds.loader(global_batch_size=32, seed=4, rank=rank, world_size=world, threads=1) as loader:
    for epoch in range(epochs):
        seen.append([batch["__key__"] for batch in loader])
        stats.append(loader.stats()["cache"])
print(json.dumps({"keys": seen, "stats": stats}))
"""


@pytest.fixture(scope="module")
def bucket(server: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, int]:
    """The URL of a set of 32 shards, the same on this machine, and its bytes."""
    source = tmp_path_factory.mktemp("source")
    for i in range(SHARDS * SHARD_SAMPLES):
        (source / f"{i:05}.txt").write_bytes(bytes([i % 251]) * 4096)
    local = source.parent / "local"
    program.run("pack", source, local, "--shard-samples", SHARD_SAMPLES)
    url = f"s3://{server.buckets[0]}/trained"
    staging = source.parent / "staging"
    pack = ("pack", source, url, "--shard-samples", SHARD_SAMPLES, "--staging", staging)
    program.run(*pack, environment=server.environment())
    size = sum(shard_bytes for _, _, shard_bytes in headrace.open(local).shards)
    return url, local, size


def train(server: Any, url: str, folder: Path, cache_bytes: int) -> list[Any]:
    """Run the nodes at the same time; return what each says."""
    nodes = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", NODE, url, folder / f"node{rank}"),
                *map(str, (rank, WORLD, EPOCHS, cache_bytes)),
            ],
            env=os.environ | server.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    said = [node.communicate(timeout=program.TIMEOUT_S)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0] * WORLD
    return [json.loads(one) for one in said]


def test_after_the_first_epoch_nodes_read_their_own_caches(
    server: Any, bucket: tuple[str, Path, int], tmp_path: Path
) -> None:
    url, local, size = bucket
    nodes = train(server, url, tmp_path, 64 << 20)
    with headrace.open(local).loader(batch_size=32, seed=4, threads=1) as loader:
        for epoch in range(EPOCHS):
            joined = [
                [key for row in zip(*batches, strict=True) for key in row]
                for batches in zip(*(node["keys"][epoch] for node in nodes), strict=True)
            ]
            assert joined == [batch["__key__"] for batch in loader]
    first = sum(node["stats"][0]["epoch_origin_bytes"] for node in nodes)
    assert size <= first <= 1.1 * size
    for node in nodes:
        assert node["stats"][0]["epoch_bytes"] in (0, size // WORLD)
        assert [stats["epoch_origin_bytes"] for stats in node["stats"][1:]] == [0] * (EPOCHS - 1)


def test_a_cache_for_half_halves_what_is_read(
    server: Any, bucket: tuple[str, Path, int], tmp_path: Path
) -> None:
    url, _, size = bucket
    half = 0.5
    # Room for the blocks of half the shards, with what a block and its object take beside them, and
    # for the indexes.
    room = int(size / WORLD * half) + 400_000
    nodes = train(server, url, tmp_path, room)
    # And the one shard that was on its way when an epoch ended.
    allowed = (1 - half) * size / WORLD + 1.05 * size / SHARDS
    for node in nodes:
        later = [stats["epoch_origin_bytes"] for stats in node["stats"][1:]]
        assert all(read <= allowed for read in later), later


def test_a_node_that_was_warmed_reads_nothing(
    server: Any, bucket: tuple[str, Path, int], tmp_path: Path
) -> None:
    url, _, _ = bucket
    for rank in range(WORLD):
        program.run(
            *("cache", "warm", url, "--cache-dir", tmp_path / f"node{rank}"),
            *("--cache-bytes", 64 << 20, "--ranks", rank, "--world-size", WORLD),
            *("--seed", 4, "-b", 32, "--epoch", 0),
            environment=server.environment(),
        )
    nodes = train(server, url, tmp_path, 64 << 20)
    for node in nodes:
        assert [stats["epoch_origin_bytes"] for stats in node["stats"]] == [0] * EPOCHS
