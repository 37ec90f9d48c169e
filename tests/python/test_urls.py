"""Datasets by URL: over HTTP from a small server of this test, and from folders."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import headrace


class RangeServer(ThreadingHTTPServer):
    """A web server of a folder that answers range requests, counts, and fails when it is told to."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), RangeHandler)
        self.root = root
        self.requests: list[tuple[str, str, str | None]] = []  # method, target, range
        self.failures = 0  # how many of the next requests get a 503
        self.meet: threading.Event | None = None  # set once two reads of shards run at once
        self.active = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class RangeHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one piece
    server: RangeServer

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        server = self.server
        wanted = self.headers.get("Range")
        with server.lock:
            server.requests.append((self.command, self.path, wanted))
            failing = server.failures > 0
            server.failures -= failing
            meets = server.meet is not None and with_body and self.path.endswith(".tar")
            server.active += meets
            if server.meet is not None and server.active >= 2:
                server.meet.set()
        try:
            if server.meet is not None and meets:
                server.meet.wait(20)
            self.send(503 if failing else 200, wanted, with_body)
        finally:
            with server.lock:
                server.active -= meets

    def send(self, status: int, wanted: str | None, with_body: bool) -> None:
        name = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).lstrip("/")
        path = self.server.root / name
        if status == 200 and not path.is_file():
            status = 404
        if status != 200:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = path.read_bytes()
        stat = path.stat()
        etag = f'"{stat.st_size:x}-{stat.st_mtime_ns:x}-{stat.st_ino:x}"'
        if self.headers.get("If-Match") not in (None, etag):
            status, part = 412, b""
        elif wanted is not None:
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted)
            assert match is not None, wanted
            first, last = int(match[1]), min(int(match[2]), len(data) - 1)
            status, part = (206, data[first : last + 1]) if first < len(data) else (416, b"")
        else:
            part = data
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(part)))
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        elif status == 416:
            self.send_header("Content-Range", f"bytes */{len(data)}")
        self.end_headers()
        if with_body:
            self.wfile.write(part)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    """A server of an empty folder, ``server.root``."""
    root = tmp_path / "www"
    root.mkdir()
    server = RangeServer(root)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def served(server: RangeServer, texts: Path) -> str:
    """The URL of ``texts``."""
    os.symlink(texts, server.root / "a set")
    return server.url + "/a%20set"


def test_a_packed_dataset_is_read_over_http(served: str, texts: Path) -> None:
    ds, local = headrace.open(served), headrace.open(texts)
    assert ds.version == local.version
    assert ds.shards == local.shards
    assert [ds[i] for i in range(400)] == [local[i] for i in range(400)]
    assert ds["0123"] == local["0123"]


def test_shards_are_read_by_ranges(served: str, server: RangeServer) -> None:
    ds = headrace.open(served)
    ds[5]
    shards = [
        r for r in server.requests if ".tar" in r[1] and r[0] == "GET" and "hridx" not in r[1]
    ]
    assert shards
    assert all(wanted is not None for _, _, wanted in shards)
    assert len({target for _, target, _ in shards}) == 1, "only the shard of the sample"


def test_the_loader_gives_the_same_batches(served: str, texts: Path) -> None:
    def keys(path: Any) -> list[list[str]]:
        with headrace.open(path).loader(batch_size=16, seed=3, threads=3) as loader:
            return [batch["__key__"] for batch in loader]

    assert keys(served) == keys(texts)


def test_the_loaders_threads_read_at_the_same_time(served: str, server: RangeServer) -> None:
    ds = headrace.open(served)
    server.meet = threading.Event()
    with ds.loader(batch_size=8, threads=4) as loader:
        next(iter(loader))
    assert server.meet.is_set()


def test_a_busy_server_is_asked_again(served: str, server: RangeServer) -> None:
    server.failures = 3
    ds = headrace.open(served)
    server.failures = 2
    assert ds[0]["cls"] == b"0"


def test_a_server_that_stays_busy_is_an_error(served: str, server: RangeServer) -> None:
    server.failures = 1_000_000
    with pytest.raises(headrace.HeadraceError, match="503") as caught:
        headrace.open(served, storage_options={"retry_budget": "200ms"})
    assert server.url in str(caught.value)
    assert not isinstance(caught.value, headrace.NotFoundError)


def test_what_is_not_there_is_named(server: RangeServer) -> None:
    with pytest.raises(headrace.NotFoundError, match=re.escape(server.url)):
        headrace.open(server.url + "/none")


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(headrace.HeadraceError, match=r"127\.0\.0\.1:1/none"):
        headrace.open("http://127.0.0.1:1/none", storage_options={"retry_budget": "100ms"})


def test_a_shard_that_is_replaced_is_never_mixed(
    server: RangeServer, photos: Path, tmp_path: Path
) -> None:
    for path in photos.iterdir():
        if path.is_file():
            (server.root / path.name).write_bytes(path.read_bytes())
    ds = headrace.open(server.url)
    ds[0]
    shard = server.root / ds.shards[0][0]
    (tmp_path / "new").write_bytes(shard.read_bytes())
    (tmp_path / "new").rename(shard)
    with pytest.raises(headrace.StateError, match="replaced"):
        ds[1]
    assert headrace.open(server.url)[1] == headrace.open(photos)[1]


def test_a_pickled_dataset_opens_its_url_again(served: str) -> None:
    ds = headrace.open(served, storage_options={"connections": 4}, fields=["cls"])
    again = pickle.loads(pickle.dumps(ds))
    assert again[7] == ds[7]
    assert again.version == ds.version


def _read_in_child(ds: headrace.Dataset, answers: Any) -> None:
    answers.put([ds[i]["cls"] for i in range(0, 400, 40)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_reads_over_connections_of_its_own(served: str, method: str) -> None:
    ds = headrace.open(served)
    expected = [ds[i]["cls"] for i in range(0, 400, 40)]
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    children = [context.Process(target=_read_in_child, args=(ds, answers)) for _ in range(2)]
    for child in children:
        child.start()
    found = [answers.get(timeout=120) for _ in children]
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert found == [expected, expected]
    assert [ds[i]["cls"] for i in range(0, 400, 40)] == expected


def test_secrets_go_to_their_server_and_nowhere_else(
    served: str, server: RangeServer, texts: Path
) -> None:
    ds = headrace.open(served + "?token=s3cret")
    assert all("token=s3cret" in target for _, target, _ in server.requests)
    assert "s3cret" not in repr(ds)
    with pytest.raises(headrace.NotFoundError) as caught:
        headrace.open(server.url + "/none?token=s3cret")
    assert "s3cret" not in str(caught.value)


def test_file_urls_are_folders(texts: Path) -> None:
    assert headrace.open(texts.as_uri()).version == headrace.open(texts).version


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("gs://bucket/a", {}, "s3://, https://"),
        ("s3://", {}, "names no place"),
        ("file://host/a", {}, "another machine"),
        ("s3://bucket/a", {"endpont": "x"}, "endpoint, region"),
        ("s3://bucket/a", {"anonymous": "maybe"}, "true or false"),
        ("s3://bucket/a", {"connections": 1.5}, "float"),
    ],
)
def test_what_makes_no_sense_is_refused(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=re.escape(words)):
        headrace.open(url, storage_options=options)


def test_the_program_takes_urls(
    served: str, texts: Path, tmp_path: Path, run_headrace: Callable[..., str]
) -> None:
    for command in (
        ["ls", "{}"],
        ["ls", "--samples", "--limit", "5", "{}"],
        ["cat", "{}", "0042", "cls"],
        ["order", "{}", "--seed", "1", "--global-batch-size", "20", "--batches", "3"],
        ["verify", "{}"],
    ):
        over_http, local = (
            run_headrace(*(a.format(place) for a in command)) for place in (served, texts)
        )
        assert over_http == local
    assert "samples/s" in run_headrace("bench", served, "--mode", "raw", "--passes", "1")


def test_tars_on_a_web_server_are_indexed_and_packed(
    served: str, texts: Path, tmp_path: Path, run_headrace: Callable[..., str]
) -> None:
    names = sorted(path.name for path in texts.glob("*.tar"))
    urls = [f"{served}/{name}" for name in names]
    run_headrace("index", *urls, "--output", tmp_path / "index", "--quiet")
    ds, local = headrace.open(tmp_path / "index"), headrace.open(texts)
    assert [s["__key__"] for s in ds] == [s["__key__"] for s in local]
    assert ds[17] == local[17]
    run_headrace("pack", *urls, tmp_path / "packed", "--quiet")
    assert [s["cls"] for s in headrace.open(tmp_path / "packed")] == [s["cls"] for s in local]
    said = run_headrace("index", urls[0], check=False)
    assert said == ""
