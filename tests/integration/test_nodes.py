"""Nodes of a job as processes, each with a cache, before an S3 server: what the server has to answer.

Bytes are counted by a proxy before the server, and only those of shards (``.tar``). No test measures time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bucket_set
import counting_proxy
import program
import pytest
import slow_link

SHARDS, SHARD_SAMPLES, SAMPLE_BYTES = 96, 8, 32 << 10
# Blocks that are brought ahead of their use, at most; a shard here is one block.
AHEAD_BLOCKS = 16
# The loader is up to eight batches inside the next epoch when one ends. Where epochs are counted one by
# one batches are small, so that this is little.
SMALL = {"batch_size": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bucket_set.BucketSet]:
    """A set in a bucket."""
    folder = tmp_path_factory.mktemp("nodes")
    samples = SHARDS * SHARD_SAMPLES
    with bucket_set.running(folder, samples, SAMPLE_BYTES, SHARD_SAMPLES) as made:
        assert len(made.shard_sizes()) == SHARDS
        yield made


@pytest.fixture(autouse=True)
def count_anew(data: bucket_set.BucketSet) -> None:
    """Each test counts its own."""
    data.proxy.forget()


def epochs_at_once(nodes: list[Any]) -> list[dict[str, Any]]:
    """Let all nodes read an epoch at the same time."""
    for node in nodes:
        node.tell("batches 0")
    return [node.answer() for node in nodes]


def asked_twice(data: bucket_set.BucketSet, nodes: list[Any]) -> int:
    """The most bytes that nodes asked for a second time where an answer was late: a question of time."""
    hedges = sum(node.ask("stats")["cache"]["hedges"] for node in nodes)
    return int(hedges) * max(data.shard_sizes())


@pytest.mark.parametrize("world_size", [1, 2])
def test_processes_of_a_node_fetch_each_byte_once(
    data: bucket_set.BucketSet, tmp_path: Path, world_size: int
) -> None:
    """Two jobs that read the same in the same order; two ranks of one job."""
    settings = [
        {"rank": number % world_size, "world_size": world_size, "tail": "uneven"}
        for number in range(2)
    ]
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(data.node(tmp_path / "cache", loader=each)) for each in settings
        ]
        got = epochs_at_once(nodes)
        assert got == [data.expected(**each) for each in settings]
        assert data.proxy.unique_bytes(".tar") <= data.data_bytes()
        once = 1.02 * data.proxy.unique_bytes(".tar")
        assert data.proxy.bytes_sent(".tar") <= once + asked_twice(data, nodes)
        data.proxy.forget()
        got = epochs_at_once(nodes)
        assert got == [data.expected(1, **each) for each in settings]
        assert data.proxy.bytes_sent(".tar") <= asked_twice(data, nodes), "all of it is here by now"


def test_the_cache_can_come_from_the_environment(
    data: bucket_set.BucketSet, tmp_path: Path
) -> None:
    cache = {"HEADRACE_CACHE_DIR": str(tmp_path / "cache"), "HEADRACE_CACHE_BYTES": "1GiB"}
    for expected_bytes in (data.data_bytes(), 0):
        with data.node(environment=cache) as node:
            assert node.epoch() == data.expected()
        assert data.proxy.unique_bytes(".tar") == expected_bytes
        data.proxy.forget()


def test_nodes_keep_their_lanes(data: bucket_set.BucketSet, tmp_path: Path) -> None:
    """Four nodes with a cache each that holds its part: the origin is read once in all."""
    world = 4
    settings = [{"rank": rank, "world_size": world} for rank in range(world)]
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(data.node(tmp_path / f"cache-{rank}", loader=each))
            for rank, each in enumerate(settings)
        ]
        for epoch in range(3):
            got = epochs_at_once(nodes)
            assert got == [data.expected(epoch, **each) for each in settings]
            allowed = 1.1 * data.data_bytes() if epoch == 0 else 0
            sent = data.proxy.bytes_sent(".tar")
            assert sent <= allowed + asked_twice(data, nodes), f"epoch {epoch}"
            data.proxy.forget()


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_half_a_cache_saves_half_of_the_reads(
    data: bucket_set.BucketSet, tmp_path: Path, world_size: int
) -> None:
    fraction, epochs = 0.5, 3
    settings = [{"rank": rank, "world_size": world_size} | SMALL for rank in range(world_size)]
    limit = {"cache_bytes": int(data.cost_bytes() * fraction / world_size)}
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(data.node(tmp_path / f"cache-{rank}", loader=each, storage=limit))
            for rank, each in enumerate(settings)
        ]
        for epoch in range(epochs + 1):
            got = epochs_at_once(nodes)
            assert got == [data.expected(epoch, **each) for each in settings]
            if epoch == 0:
                check_first_epoch(data, nodes)
                data.proxy.forget()
        check_hits(data, fraction, epochs, nodes)


def check_first_epoch(data: bucket_set.BucketSet, nodes: list[Any]) -> None:
    """All is read about once."""
    allowed = 1.1 * data.data_bytes() + asked_twice(data, nodes)
    assert data.proxy.bytes_sent(".tar") <= allowed


def check_hits(data: bucket_set.BucketSet, fraction: float, epochs: int, nodes: list[Any]) -> None:
    """The epochs after the first read what is not cached, and what is brought ahead of its use."""
    ahead = AHEAD_BLOCKS * max(data.shard_sizes()) * len(nodes)
    allowed = (1 - fraction) * data.data_bytes() + ahead + asked_twice(data, nodes)
    sent = data.proxy.bytes_sent(".tar") / epochs
    print(f"origin bytes of an epoch: {sent / data.data_bytes():.3f} of the set")
    assert sent <= allowed
    assert sent >= (1 - fraction) * data.data_bytes() * 0.9, "the cache holds more than its limit"


def test_the_death_of_the_process_that_fetches_frees_its_block(
    data: bucket_set.BucketSet, tmp_path: Path
) -> None:
    cache, first = tmp_path / "cache", "shard-000000.tar"
    asked, let_go = threading.Event(), threading.Event()

    def hold_the_first(method: str, path: str) -> None:
        if method == "GET" and path.endswith(first) and not asked.is_set():
            asked.set()
            let_go.wait(240)

    with data.node(cache) as fetcher, data.node(cache) as other:
        other.ask("sample 100")  # it is open, and has not read the block yet
        data.proxy.gate = hold_the_first
        try:
            fetcher.tell("sample 0")
            assert asked.wait(240)
            data.proxy.forget()
            other.tell("sample 0")
            time.sleep(0.5)  # it may wait for the fetcher, and do nothing else
            assert data.proxy.reads(first) == [], "two processes fetched one block"
            fetcher.kill()
            answer = other.answer()
            assert answer["rows"] == 1 and "error" not in answer
            assert other.ask("sample 0") == answer
            assert data.proxy.bytes_sent(first) == data.proxy.unique_bytes(first) > 0
        finally:
            let_go.set()
            data.proxy.gate = lambda method, path: None
    # It took the dead one's place, rather than to read past the cache in the end.
    listed = json.loads(program.run("cache", "ls", "--cache-dir", cache, "--json")[0])
    assert first in json.dumps(listed)


def test_half_a_cache_behind_a_slow_link(data: bucket_set.BucketSet, tmp_path: Path) -> None:
    """The link decides how long it takes, and nothing about what is fetched."""
    if obstacle := slow_link.obstacle():
        pytest.skip(f"no slow link here: {obstacle}")
    fraction, epochs = 0.5, 2
    limit = {"cache_bytes": int(data.cost_bytes() * fraction)}
    with (
        slow_link.running("200mbit") as link,
        counting_proxy.running(data.server.endpoint, link.listen()) as proxy,
    ):
        slow = bucket_set.BucketSet(data.server, proxy, data.url, data.local)
        with slow.node(tmp_path / "cache", loader=SMALL, storage=limit, wrap=link.near) as node:
            assert node.epoch() == data.expected(**SMALL)
            check_first_epoch(slow, [node])
            proxy.forget()
            for epoch in range(1, epochs + 1):
                assert node.epoch() == data.expected(epoch, **SMALL)
            check_hits(slow, fraction, epochs, [node])
