"""Datasets by URL: over HTTP from a small server of this test, and from folders."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import pytest

import headrace


def test_a_packed_dataset_is_read_over_http(served: str, texts: Path) -> None:
    ds, local = headrace.open(served), headrace.open(texts)
    assert ds.version == local.version
    assert ds.shards == local.shards
    assert [ds[i] for i in range(400)] == [local[i] for i in range(400)]
    assert ds["0123"] == local["0123"]


def test_shards_are_read_by_ranges(served: str, server: Any) -> None:
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


def test_the_loaders_threads_read_at_the_same_time(served: str, server: Any) -> None:
    ds = headrace.open(served)
    server.meet = threading.Event()
    with ds.loader(batch_size=8, threads=4) as loader:
        next(iter(loader))
    assert server.meet.is_set()


def test_a_busy_server_is_asked_again(served: str, server: Any) -> None:
    server.failures = 3
    ds = headrace.open(served)
    server.failures = 2
    assert ds[0]["cls"] == b"0"


def test_a_server_that_stays_busy_is_an_error(served: str, server: Any) -> None:
    server.failures = 1_000_000
    with pytest.raises(headrace.HeadraceError, match="503") as caught:
        headrace.open(served, storage_options={"retry_budget": "200ms"})
    assert server.url in str(caught.value)
    assert not isinstance(caught.value, headrace.NotFoundError)


def test_what_is_not_there_is_named(server: Any) -> None:
    with pytest.raises(headrace.NotFoundError, match=re.escape(server.url)):
        headrace.open(server.url + "/none")


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(headrace.HeadraceError, match=r"127\.0\.0\.1:1/none"):
        headrace.open("http://127.0.0.1:1/none", storage_options={"retry_budget": "100ms"})


def test_a_shard_that_is_replaced_is_never_mixed(server: Any, photos: Path, tmp_path: Path) -> None:
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
    found = children.answers_of(method, _read_in_child, [(ds,)] * 2)
    assert found == [expected, expected]
    assert [ds[i]["cls"] for i in range(0, 400, 40)] == expected


def test_secrets_go_to_their_server_and_nowhere_else(served: str, server: Any, texts: Path) -> None:
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
