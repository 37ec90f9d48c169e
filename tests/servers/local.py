"""What servers of tests have in common: free ports, waiting, ending, and signed S3 requests."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 90


@dataclass(frozen=True)
class S3Server:
    """An S3 server that answers, with a bucket or more."""

    endpoint: str
    access_key: str
    secret_key: str
    buckets: tuple[str, ...]
    dialect: str  # see docs/guide/buckets.md
    region: str = "us-east-1"

    def environment(self) -> dict[str, str]:
        """Return this process's variables with those that lead AWS tools to the server."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return kept | {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "HEADRACE_S3_DIALECT": self.dialect,
        }

    def make_bucket(self, name: str) -> bool:
        """Make a bucket; False when the server does not take it (yet)."""
        return self.request("PUT", f"/{name}") in (200, 409)

    def request(self, method: str, path: str) -> int:
        """Send a signed request without a body; return the status, 0 without an answer."""
        host = urllib.parse.urlsplit(self.endpoint).netloc
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        empty = hashlib.sha256(b"").hexdigest()
        headers = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": now}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        canonical = "\n".join([method, urllib.parse.quote(path), "", lines, names, empty])
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = ("AWS4" + self.secret_key).encode()
        for part in [*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"]:
            key = hmac.digest(key, part.encode(), "sha256")
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={key.hex()}"
        )
        url = self.endpoint + urllib.parse.quote(path)
        request = urllib.request.Request(url, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def is_open(port: int) -> bool:
    """Tell whether something listens on a port of 127.0.0.1."""
    with socket.socket() as one:
        one.settimeout(5)
        return one.connect_ex(("127.0.0.1", port)) == 0


class Daemon:
    """A program in the background that ends with this process, however that ends."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path) -> None:
        """Start it; its output goes to ``log``."""
        self.name = name
        self.log = log
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait until ``ready``; show the log when it ends or takes too long."""
        end = time.monotonic() + START_SECONDS
        while not ready():
            if self.process.poll() is not None or time.monotonic() > end:
                tail = self.log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{self.name}: {what} did not come about:\n{tail}")
            time.sleep(0.05)

    def stop(self, patience: float = 1) -> None:
        """End it and its children: with SIGTERM, and after ``patience`` seconds with SIGKILL."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)
