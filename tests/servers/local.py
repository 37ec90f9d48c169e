"""What servers of tests have in common: free ports, waiting, ending, and signed S3 requests."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import os
import random
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

# Limits for what hangs: a busy machine may need minutes for what takes seconds.
START_SECONDS = 240
CALL_SECONDS = 120


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

    def put(self, key: str, data: bytes) -> None:
        """Make an object in the first bucket, or replace it."""
        status = self.request("PUT", f"/{self.buckets[0]}/{key}", data)
        if status != 200:
            raise RuntimeError(f"the server answered {status} when {key} was put")

    def request(self, method: str, path: str, body: bytes = b"") -> int:
        """Send a signed request; return the status, 0 without an answer."""
        host = urllib.parse.urlsplit(self.endpoint).netloc
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        content = hashlib.sha256(body).hexdigest()
        headers = {"host": host, "x-amz-content-sha256": content, "x-amz-date": now}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        quoted = urllib.parse.quote(path, safe="/~")
        canonical = "\n".join([method, quoted, "", lines, names, content])
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = ("AWS4" + self.secret_key).encode()
        for part in [*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"]:
            key = hmac.digest(key, part.encode(), "sha256")
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={key.hex()}"
        )
        url = self.endpoint + quoted
        request = urllib.request.Request(url, body or None, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=CALL_SECONDS) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


def _open_ports() -> range:
    """Ports that the system gives to no connection of its own accord, where it leaves any."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if low > 20_000:
        return range(15_000, low)
    return range(high + 1, 65_536) if high < 64_000 else range(15_000, 32_768)


_taken: list[socket.socket] = []  # their names keep ports until this process ends


def _take(port: int) -> bool:
    """Keep a port from other tests while this process lives; False when somebody has it."""
    mark, probe = socket.socket(socket.AF_UNIX), socket.socket()
    with probe:
        try:
            mark.bind(f"\0headrace-test-port-{port}")
            probe.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
            return False
    _taken.append(mark)
    return True


def free_range(count: int) -> range:
    """Return ports in a row for a server of this process's, which no other test is given."""
    choices = _open_ports()
    draw = random.SystemRandom()
    while True:
        first = draw.randrange(choices.start, choices.stop - count)
        if all(_take(port) for port in range(first, first + count)):
            return range(first, first + count)


def free_ports(count: int) -> list[int]:
    """Return ports for servers of this process's, which no other test is given."""
    return [free_range(1)[0] for _ in range(count)]


def is_open(port: int) -> bool:
    """Tell whether something listens on a port of 127.0.0.1."""
    with socket.socket() as one:
        one.settimeout(CALL_SECONDS)
        return one.connect_ex(("127.0.0.1", port)) == 0


# Bits of CapEff in /proc/self/status.
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}


def obstacle(
    programs: Sequence[str],
    packages: str,
    capabilities: Sequence[str] = (),
    devices: Sequence[str] = (),
) -> str:
    """Return why something that needs these cannot run here, or an empty string."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    effective = int(status["CapEff"], 16)
    for name in capabilities:
        if os.geteuid() != 0 or not effective >> CAPABILITIES[name] & 1:
            return f"it needs root with {name}"
    if lacking := [name for name in programs if not shutil.which(name)]:
        return f"not installed: {', '.join(lacking)} (Debian: apt-get install {packages})"
    for device in devices:
        try:
            os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            return f"{device} cannot be opened: {error.strerror}"
    return ""


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

    def kill(self) -> None:
        """End it by force, as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=CALL_SECONDS)

    def stop(self, patience: float = 1) -> None:
        """End it and its children: with SIGTERM, and after ``patience`` seconds with SIGKILL."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=patience)
        self.kill()
