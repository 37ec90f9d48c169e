"""A packed data set, on this machine and in the bucket of a server, with a proxy between that counts."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import counting_proxy
import nodes
import program
import seaweedfs

import headrace

PREFIX = "set"
PAGE = 4096  # of a cache's files: docs/formats/cache.md


def write_source(path: Path, samples: int, sample_bytes: int) -> None:
    """Write a tar of random samples."""
    draw = random.Random(11)
    members = {b"%06d.bin" % n: draw.randbytes(sample_bytes) for n in range(samples)}
    program.write_tar(path, members)


@dataclass
class BucketSet:
    """The set, and how it is reached."""

    server: Any
    proxy: Any
    url: str
    local: Path  # the same set in a folder

    def storage(self, cache: Path | None = None, **more: object) -> dict[str, object]:
        """Return storage options: by the proxy, through a cache whose blocks stay on the disk."""
        options: dict[str, object] = {
            "endpoint": self.proxy.endpoint,
            "access_key_id": self.server.access_key,
            "secret_access_key": self.server.secret_key,
            "region": self.server.region,
            "dialect": self.server.dialect,
        }
        if cache is not None:
            options |= {"cache_dir": str(cache), "cache_memory_bytes": 0}
        return options | more

    def node(self, cache: Path | None = None, **options: Any) -> nodes.Node:
        """Start a node that reads the set through a cache."""
        storage = self.storage(cache, **options.pop("storage", {}))
        return nodes.Node(self.url, storage=storage, **options)

    def expected(self, epoch: int = 0, *, skip: int = 0, **loader: Any) -> dict[str, Any]:
        """Return what a node must get in an epoch after ``skip`` batches, read from the folder."""
        with headrace.open(self.local).loader(**nodes.LOADER | loader) as one:
            one.set_epoch(epoch)
            return nodes.digest(list(one)[skip:])

    def shard_sizes(self) -> list[int]:
        """Return the bytes of each shard."""
        return [size for _, _, size in headrace.open(self.local).shards]

    def data_bytes(self) -> int:
        """Return the bytes of all shards."""
        return sum(self.shard_sizes())

    def cost_bytes(self) -> int:
        """Return what a cache counts for all objects of the set, each being one block."""
        sizes = [path.stat().st_size for path in self.local.iterdir() if path.is_file()]
        # A header, the data in whole pages, and the object's description.
        return sum(PAGE + -(-size // PAGE) * PAGE + PAGE for size in sizes)


@contextlib.contextmanager
def running(
    folder: Path, samples: int, sample_bytes: int, shard_samples: int
) -> Iterator[BucketSet]:
    """Start a server with a set in its bucket."""
    write_source(folder / "source.tar", samples, sample_bytes)
    options = ["--shard-samples", shard_samples, "--no-fsync", "--quiet"]
    program.run("pack", folder / "source.tar", folder / "local", *options)
    with seaweedfs.running(folder / "weed") as server:
        url = f"s3://{server.buckets[0]}/{PREFIX}"
        pack = [folder / "source.tar", url, *options, "--staging", folder / "staging"]
        program.run("pack", *pack, environment=server.environment())
        with counting_proxy.running(server.endpoint) as proxy:
            yield BucketSet(server, proxy, url, folder / "local")
