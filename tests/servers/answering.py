"""What the web servers of tests have in common that answer in threads of the test's own process."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar


class Server(ThreadingHTTPServer):
    """A server on 127.0.0.1 and a free port."""

    daemon_threads = True
    request_queue_size = 256  # a busy machine does not get to accepting them at once

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        """Listen."""
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        """What a client takes for the server."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD by ``answer``, over connections that are kept."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one piece

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        """Send the answer to the request."""
        raise NotImplementedError

    def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send an answer; to HEAD without its body."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def read(data: bytes, etag: str, asked: Message) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body for If-Match and Range: 200, 206, 412 or 416."""
    headers = {"ETag": etag, "Accept-Ranges": "bytes"}
    if asked.get("If-Match") not in (None, etag):
        return 412, headers, b""
    wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", asked.get("Range", ""))
    if wanted is None:
        assert "Range" not in asked, asked["Range"]
        return 200, headers, data
    first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
    if first >= len(data):
        return 416, headers | {"Content-Range": f"bytes */{len(data)}"}, b""
    headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
    return 206, headers, data[first : last + 1]


AnyServer = TypeVar("AnyServer", bound=Server)


@contextlib.contextmanager
def running(server: AnyServer) -> Iterator[AnyServer]:
    """Let a server answer until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
