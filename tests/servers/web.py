"""A web server of a folder that answers range requests, on 127.0.0.1 and a free port, for tests."""

from __future__ import annotations

import sys
import threading
import urllib.parse
from contextlib import AbstractContextManager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import answering

# A test waits no longer for two reads that are to be under way at once; they always are in the end.
MEETING_SECONDS = 240


class RangeServer(answering.Server):
    """Counts what is asked of it, and fails when it is told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(RangeHandler)
        self.root = root
        self.requests: list[tuple[str, str, str | None]] = []  # method, target, range
        self.failures = 0  # how many of the next requests get a 503
        self.meet: threading.Event | None = None  # set once two reads of shards run at once
        self.active = 0
        self.lock = threading.Lock()


class RangeHandler(answering.Handler):
    server: RangeServer

    def answer(self) -> None:
        server = self.server
        wanted = self.headers.get("Range")
        with server.lock:
            server.requests.append((self.command, self.path, wanted))
            failing = server.failures > 0
            server.failures -= failing
            meets = server.meet is not None and self.command == "GET" and self.path.endswith(".tar")
            server.active += meets
            if server.meet is not None and server.active >= 2:
                server.meet.set()
        try:
            if server.meet is not None and meets:
                server.meet.wait(MEETING_SECONDS)
            self.give(failing)
        finally:
            with server.lock:
                server.active -= meets

    def give(self, failing: bool) -> None:
        name = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).lstrip("/")
        path = self.server.root / name
        if failing or not path.is_file():
            return self.send(503 if failing else 404, {}, b"")
        stat = path.stat()
        etag = f'"{stat.st_size:x}-{stat.st_mtime_ns:x}-{stat.st_ino:x}"'
        return self.send(*answering.read(path.read_bytes(), etag, self.headers))


def running(root: Path) -> AbstractContextManager[RangeServer]:
    """Serve a folder until the end of the block."""
    return answering.running(RangeServer(root))
