"""An HTTP proxy before a server of tests that counts what the server answers: the bytes of bodies.

    with counting_proxy.running(server.endpoint) as proxy:
        ...  # ask proxy.endpoint instead
        proxy.bytes_sent(".tar"), proxy.answers

Requests go on as they came, Host and signature with them. A test can hold them back (``gate``) and have
them go wrong (``fault``). It runs in threads of this process. With ``listener`` it can be reached from
another network namespace (slow_link.py).
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

CHUNK = 256 << 10
REFUSALS = {"503": "SlowDown", "429": "TooManyRequests", "500": "InternalError"}
# Headers of one connection, which do not go on to the next one.
HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}


@dataclass
class Answer:
    """What a request was given."""

    method: str
    path: str  # decoded, without the query
    status: int
    begin: int  # of the range that was asked for
    sent: int = 0  # bytes of the body, counted before they go out


class CountingProxy(http.server.ThreadingHTTPServer):
    """A proxy that listens."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, target: str, listener: socket.socket | None = None) -> None:
        """Take a bound socket, or a free port of 127.0.0.1."""
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        if listener is not None:
            self.socket.close()
            self.socket = listener
        else:
            self.socket.bind(self.server_address)
        host, port = self.socket.getsockname()[:2]
        self.server_name, self.server_port = host, port
        self.server_activate()
        self.endpoint = f"http://{host}:{port}"
        self.target = urllib.parse.urlsplit(target).netloc
        # Called with method and path before a request goes on, on a thread of its own.
        self.gate: Callable[[str, str], None] = lambda method, path: None
        # What becomes of a request, by method and path: nothing bad (""), one of REFUSALS, or "cut" (it
        # never reaches the server), "lost" (the server does it, and does not get to answer), "half" (the
        # answer's body ends early).
        self.fault: Callable[[str, str], str] = lambda method, path: ""
        self._lock = threading.Lock()
        self._answers: list[Answer] = []

    def note(self, answer: Answer) -> None:
        """Count an answer."""
        with self._lock:
            self._answers.append(answer)

    def forget(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self._answers.clear()

    @property
    def answers(self) -> list[Answer]:
        """What was answered so far, in order."""
        with self._lock:
            return list(self._answers)

    def reads(self, ending: str = "") -> list[Answer]:
        """Return the answers with bytes of objects whose path has this ending."""
        return [a for a in self.answers if a.method == "GET" and a.sent and a.path.endswith(ending)]

    def bytes_sent(self, ending: str = "") -> int:
        """Return how many bytes of such objects went out."""
        return sum(answer.sent for answer in self.reads(ending))

    def unique_bytes(self, ending: str = "") -> int:
        """Return how many different bytes of such objects went out."""
        total, path, end = 0, "", 0
        for answer in sorted(self.reads(ending), key=lambda a: (a.path, a.begin)):
            if answer.path != path:
                path, end = answer.path, 0
            total += max(0, answer.begin + answer.sent - max(end, answer.begin))
            end = max(end, answer.begin + answer.sent)
        return total


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a client. Each request gets a new one to the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 120
    server: CountingProxy

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()

    def handle(self) -> None:
        # A client that was killed is no fault of the proxy.
        with contextlib.suppress(OSError, http.client.HTTPException):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def relay(self) -> None:
        """Send the request on, and the answer back."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.server.gate(self.command, path)
        fault = self.server.fault(self.command, path)
        if fault in REFUSALS:
            return self.refuse(int(fault), REFUSALS[fault])
        if fault == "cut":
            raise ConnectionAbortedError
        server = http.client.HTTPConnection(self.server.target, timeout=self.timeout)
        with contextlib.closing(server):
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    server.putheader(name, value)
            server.endheaders(body or None)
            response = server.getresponse()
            if fault == "lost":
                raise ConnectionAbortedError
            return self.answer(response, path, fault == "half")

    def refuse(self, status: int, code: str) -> None:
        """Answer in the server's place that it will not."""
        text = f"<Error><Code>{code}</Code><Message>as the test says</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def answer(self, response: http.client.HTTPResponse, path: str, halve: bool = False) -> None:
        """Pass an answer on, or the first half of it."""
        begin = _begin_of(self.headers.get("Range"))
        answer = Answer(self.command, path, response.status, begin)
        self.server.note(answer)
        headers = [(n, v) for n, v in response.getheaders() if n.lower() not in HOP_BY_HOP]
        has_length = response.getheader("Content-Length") is not None
        chunk = response.read(CHUNK if has_length else None)
        if not has_length and self.command != "HEAD" and response.status not in (204, 304):
            headers.append(("Content-Length", str(len(chunk))))
        self.send_response_only(response.status, response.reason)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if halve:
            self.wfile.write(chunk[: len(chunk) // 2])
            raise ConnectionAbortedError
        while chunk:
            answer.sent += len(chunk)
            self.wfile.write(chunk)
            chunk = response.read(CHUNK)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = relay


def _begin_of(value: str | None) -> int:
    """Return where a range begins: "bytes=100-199" is 100."""
    return int(value.removeprefix("bytes=").split("-")[0] or 0) if value else 0


@contextlib.contextmanager
def running(target: str, listener: socket.socket | None = None) -> Iterator[CountingProxy]:
    """Start a proxy before the server at ``target`` (a URL), and end it."""
    proxy = CountingProxy(target, listener)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
