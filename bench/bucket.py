"""A bucket on this machine for the network works, and the link to it that counts and limits bytes."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from contenders import REPOSITORY, interpreter
from harness import LineReader, RunError

sys.path.insert(0, str(REPOSITORY / "tests" / "servers"))
import local
import seaweedfs

NAME = "bench"
SERVER_GROUP = "seaweedfs"  # of bench/peers/setup, where the server comes from
VOLUMES = 120  # of 64 MB: room for one dataset at a time
SIGNED_FOR_S = 24 * 3600
CALL_S = 120  # the server, or the link, may take so long for an answer


def find_server() -> bool:
    """Whether the server's program is here; puts it into PATH where the set-up installed it."""
    folder = str(interpreter(SERVER_GROUP).parent)
    if folder not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] += os.pathsep + folder
    try:
        seaweedfs.program()
    except FileNotFoundError:
        return False
    return True


@dataclass
class Bucket:
    """A bucket of a server that runs, and what was put into it."""

    server: local.S3Server
    sizes: dict[str, int] = field(default_factory=dict)  # key -> bytes

    def upload(self, prefix: str, folder: Path) -> None:
        """Put each file of the folder under the prefix. Raises RunError."""
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            key = f"{prefix}/{path.relative_to(folder).as_posix()}"
            try:
                self._put(key, path)
            except (OSError, http.client.HTTPException) as error:
                raise RunError(f"{key} could not be put: {error!r}") from error
            self.sizes[key] = path.stat().st_size

    def _put(self, key: str, path: Path) -> None:
        url = urllib.parse.urlsplit(sign(self.server, "PUT", key))
        connection = http.client.HTTPConnection(url.netloc, timeout=CALL_S)
        size = {"Content-Length": str(path.stat().st_size)}
        with contextlib.closing(connection), path.open("rb") as body:
            connection.request("PUT", f"{url.path}?{url.query}", body, size)
            answer = connection.getresponse()
            if answer.status != 200:
                raise RunError(f"the server did not take {key}: {answer.status} {answer.read()!r}")

    def keys(self, prefix: str, suffix: str = "") -> list[str]:
        """The keys below a prefix that end so."""
        return sorted(k for k in self.sizes if k.startswith(prefix + "/") and k.endswith(suffix))

    def total_bytes(self, prefix: str) -> int:
        """Bytes of all objects below a prefix."""
        return sum(self.sizes[key] for key in self.keys(prefix))

    def list_signed(self, path: Path, prefix: str, suffix: str, sizes: bool) -> Path:
        """Write a file of signed URLs, one a line, each after its size if asked for."""
        with path.open("w") as out:
            for key in self.keys(prefix, suffix):
                start = f"{self.sizes[key]} " if sizes else ""
                out.write(f"{start}{sign(self.server, 'GET', key)}\n")
        return path

    def through(self, link: Link) -> Bucket:
        """The same bucket, reached through the link."""
        server = replace(self.server, endpoint=f"http://127.0.0.1:{link.port}")
        return Bucket(server, self.sizes)

    def environment(self) -> dict[str, str]:
        """Variables that lead every reader to the server."""
        return self.server.environment() | {"AWS_DEFAULT_REGION": self.server.region}


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Bucket]:
    """Run a server that keeps its data in the empty `folder`, with an empty bucket."""
    with seaweedfs.running(folder, [NAME], volumes=VOLUMES) as server:
        yield Bucket(server)


def sign(server: local.S3Server, method: str, key: str) -> str:
    """A URL that whoever has it may use for a day (AWS Signature Version 4, in the query)."""
    host = urllib.parse.urlsplit(server.endpoint).netloc
    path = f"/{NAME}/{urllib.parse.quote(key, safe='/-_.~')}"
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{server.region}/s3/aws4_request"
    query = urllib.parse.urlencode(
        {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{server.access_key}/{scope}",
            "X-Amz-Date": now,
            "X-Amz-Expires": str(SIGNED_FOR_S),
            "X-Amz-SignedHeaders": "host",
        },
        quote_via=urllib.parse.quote,
        safe="",
    )
    canonical = f"{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    signature = ("AWS4" + server.secret_key).encode()
    for part in [*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"]:
        signature = hmac.digest(signature, part.encode(), "sha256")
    return f"{server.endpoint}{path}?{query}&X-Amz-Signature={signature.hex()}"


class Link:
    """bench/floor/origin_link.cc before the server: counts bytes, and limits them if asked to."""

    def __init__(self, program: Path, bucket: Bucket, bytes_per_second: float = 0) -> None:
        server_port = urllib.parse.urlsplit(bucket.server.endpoint).port
        self._process = subprocess.Popen(
            [str(program), str(server_port), str(bytes_per_second)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._lines = LineReader(self._process.stdout)
        try:
            self.port: int = self._read()["port"]
        except RunError:
            self.close()
            raise

    def _read(self) -> dict:
        try:
            line = self._lines.next(time.monotonic() + CALL_S)
        except TimeoutError:
            raise RunError(f"the link to the origin gave no answer within {CALL_S} s") from None
        if not line:
            raise RunError("the link to the origin has ended")
        answer: dict = json.loads(line)
        return answer

    def down_bytes(self) -> int:
        """Bytes that the server has sent so far, HTTP headers included."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RunError("the link to the origin has ended") from None
        return int(self._read()["down_bytes"])

    def close(self) -> None:
        """End it, and every connection that goes through it."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
