"""What a broken cache does to training: nothing but one warning, a figure, and more reads of the origin."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bucket_set
import local
import nodes
import pytest

SHARDS, SHARD_SAMPLES, SAMPLE_BYTES = 32, 8, 16 << 10
MOUNTING = local.obstacle(("mount", "umount"), "mount", capabilities=("CAP_SYS_ADMIN",))
NOBODY = 65534

needs_mount = pytest.mark.skipif(bool(MOUNTING), reason=f"mounting a small disk: {MOUNTING}")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="two users: it needs root")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bucket_set.BucketSet]:
    """A set in a bucket."""
    folder = tmp_path_factory.mktemp("faults")
    samples = SHARDS * SHARD_SAMPLES
    with bucket_set.running(folder, samples, SAMPLE_BYTES, SHARD_SAMPLES) as made:
        yield made


@pytest.fixture(autouse=True)
def count_anew(data: bucket_set.BucketSet) -> None:
    """Each test counts its own."""
    data.proxy.forget()


@contextlib.contextmanager
def mounted(path: Path, *options: str) -> Iterator[None]:
    """Mount something at a folder."""
    subprocess.run(["mount", *options, path], check=True, timeout=120)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True, timeout=120)


def warnings_of(node: nodes.Node, cache: Path) -> list[str]:
    """The lines of its standard error, all of which must be about the cache."""
    lines = node.errors().splitlines()
    assert all(str(cache) in line for line in lines), lines
    return lines


def figures(node: nodes.Node) -> dict[str, Any]:
    """What the loader counts of its cache."""
    counts: dict[str, Any] = node.ask("stats")["cache"]
    return counts


def fill(data: bucket_set.BucketSet, cache: Path, **options: Any) -> None:
    """Bring the whole set into a cache."""
    with data.node(cache, **options) as node:
        assert node.epoch() == data.expected()
        assert node.finish() == ""
    data.proxy.forget()


def blocks_of(cache: Path) -> list[Path]:
    """The files of a cache's blocks."""
    return sorted(cache.glob("blocks/*/*.blk"))


def leave_no_space_free(cache: Path) -> None:
    """Let a cache fill its disk to the last byte: docs/formats/cache.md, word 3."""
    with (cache / "state" / "counters").open("r+b") as file:
        file.seek(3 * 8)
        file.write(struct.pack("<Q", 1))


@needs_mount
def test_a_disk_with_less_free_space_than_is_left_alone(
    data: bucket_set.BucketSet, tmp_path: Path
) -> None:
    with mounted(tmp_path, "-t", "tmpfs", "-o", "size=8m", "tmpfs"):
        cache = tmp_path / "cache"
        with data.node(cache, storage={"cache_bytes": "1GiB"}) as node:
            for epoch in range(2):
                assert node.epoch() == data.expected(epoch)
            assert figures(node)["refused_blocks"] > 0
            assert len(warnings_of(node, cache)) == 1
        assert blocks_of(cache) == []


@needs_mount
def test_a_full_disk(data: bucket_set.BucketSet, tmp_path: Path) -> None:
    with mounted(tmp_path, "-t", "tmpfs", "-o", "size=4m", "tmpfs"):
        cache = tmp_path / "cache"
        limit = {"cache_bytes": "1GiB"}
        with data.node(cache, storage=limit) as node:
            node.ask("sample 0")
        leave_no_space_free(cache)
        (tmp_path / "of-another").write_bytes(bytes(3 << 20))
        with data.node(cache, storage=limit) as node:
            for epoch in range(2):
                assert node.epoch() == data.expected(epoch)
            counts = figures(node)
            assert counts["refused_blocks"] > 0
            assert len(warnings_of(node, cache)) == 1, node.errors()
        assert blocks_of(cache), "what fits is kept"
        assert not list(cache.glob("blocks/*/*.tmp"))


def test_files_may_not_grow(data: bucket_set.BucketSet, tmp_path: Path) -> None:
    """The same for users that are not root: no file may be as large as a block."""
    cache = tmp_path / "cache"
    with data.node(cache) as node:
        node.ask("sample 0")
    before = blocks_of(cache)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    with data.node(cache, preexec_fn=limit) as node:
        for epoch in range(2):
            assert node.epoch() == data.expected(epoch)
        assert figures(node)["degraded"] == 1
        (line,) = warnings_of(node, cache)
        assert "cannot be written" in line
    assert set(before) <= set(blocks_of(cache))


@needs_mount
def test_a_disk_that_can_only_be_read_any_more(data: bucket_set.BucketSet, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    half = {"cache_bytes": data.cost_bytes() // 2}
    with data.node(cache, storage=half) as node:
        assert node.epoch() == data.expected()
        with mounted(cache, "--bind", "-o", "ro", str(cache)):
            data.proxy.forget()
            for epoch in (1, 2):
                assert node.epoch() == data.expected(epoch)
            assert figures(node)["degraded"] == 1
            (line,) = warnings_of(node, cache)
            assert "Read-only" in line
            assert data.proxy.bytes_sent(".tar") < 2 * data.data_bytes(), "what is there is read"
            with data.node(cache, storage=half) as other:
                assert other.epoch() == data.expected()
                assert figures(other)["degraded"] == 1
                assert len(warnings_of(other, cache)) == 1


def test_a_folder_that_vanishes(data: bucket_set.BucketSet, tmp_path: Path) -> None:
    """As when its disk fails: nothing is made in its place."""
    cache, gone = tmp_path / "cache", tmp_path / "gone"
    with data.node(cache) as node:
        assert node.ask("batches 4")["rows"] == 64
        cache.rename(gone)
        assert node.epoch() == data.expected(skip=4)
        assert node.epoch() == data.expected(1)
        assert figures(node)["degraded"] == 1
        assert len(warnings_of(node, cache)) == 1
        assert not cache.exists()
    with data.node(gone) as node:
        assert node.epoch() == data.expected()
        assert node.finish() == ""


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 8
    path.write_bytes(content)


def _zero_the_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(512))


def _put_another(path: Path) -> None:
    others = [other for other in path.parent.parent.glob("*/*.blk") if other != path]
    shutil.copy(others[0], path)


@pytest.mark.parametrize("damage", [_cut, _empty, _flip_a_bit, _zero_the_header, _put_another])
def test_blocks_that_are_damaged(
    data: bucket_set.BucketSet, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    cache = tmp_path / "cache"
    fill(data, cache)
    damaged = [path for path in blocks_of(cache) if path.stat().st_size > SAMPLE_BYTES][::3]
    assert len(damaged) > 5
    for path in damaged:
        damage(path)
    with data.node(cache) as node:
        assert node.epoch() == data.expected()
        assert figures(node)["dropped_blocks"] == len(damaged)
        assert len(warnings_of(node, cache)) <= 1
        fetched = data.proxy.bytes_sent(".tar")
        assert 0 < fetched < data.data_bytes() / 2, "only what was damaged is fetched anew"
        data.proxy.forget()
        assert node.epoch() == data.expected(1)
        assert data.proxy.bytes_sent(".tar") == 0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder whose parents any user may pass."""
    with tempfile.TemporaryDirectory(prefix="headrace-test-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@needs_root
def test_a_user_who_may_not_use_it(data: bucket_set.BucketSet, open_folder: Path) -> None:
    cache = open_folder / "cache"
    fill(data, cache, umask=0o077)
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    with data.node(cache, user=NOBODY) as node:
        for epoch in range(2):
            assert node.epoch() == data.expected(epoch)
        assert figures(node)["degraded"] == 1
        (line,) = warnings_of(node, cache)
        assert "ermission" in line
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


@needs_root
def test_two_users_share_it(data: bucket_set.BucketSet, open_folder: Path) -> None:
    """Where the rights of its files let them: here by umask, elsewhere by a group."""
    cache = open_folder / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    with data.node(cache, umask=0) as first, data.node(cache, umask=0, user=NOBODY) as second:
        assert first.ask("batches 6") == second.ask("batches 6")
        first.epoch()
        second.epoch()
        assert data.proxy.bytes_sent(".tar") <= 1.02 * data.proxy.unique_bytes(".tar")
        data.proxy.forget()
        for node in (first, second):
            assert node.epoch() == data.expected(1)
            assert node.finish() == ""
    assert data.proxy.bytes_sent(".tar") == 0
    assert {path.stat().st_uid for path in blocks_of(cache)} <= {0, NOBODY}
