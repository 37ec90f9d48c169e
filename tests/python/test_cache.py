"""Datasets at a URL read through the cache of a node: what its origin is asked for, and by whom."""

from __future__ import annotations

import json
import multiprocessing
import operator
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import pytest

import headrace


def data_requests(server: Any) -> list[tuple[str, str | None]]:
    """The reads of shards that the server was asked for since the last call: name and range."""
    with server.lock:
        found = [(name, part) for method, name, part in server.requests if method == "GET"]
        server.requests.clear()
    return [(name, part) for name, part in found if name.endswith(".tar")]


@pytest.fixture
def cached(tmp_path: Path) -> dict[str, str]:
    """Storage options with a cache of this test."""
    return {"cache_dir": str(tmp_path / "cache"), "cache_bytes": "64MiB"}


def program(*arguments: object, code: int = 0, **environment: str) -> str:
    """Run the program; return what it printed and said."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def read_elsewhere(ds: Any, answers: Any) -> None:
    """Read everything and send it home."""
    answers.put([(s["__key__"], s["cls"]) for s in ds])


def test_what_was_read_once_is_not_asked_for_again(
    served: str, server: Any, texts: Path, cached: dict[str, str]
) -> None:
    local = list(headrace.open(texts))
    ds = headrace.open(served, storage_options=cached)
    assert list(ds) == local
    asked = data_requests(server)
    assert len(asked) == len({name for name, _ in asked}) == len(ds.shards), "whole blocks, once"
    assert list(ds) == local
    assert list(headrace.open(served, storage_options=cached)) == local
    assert data_requests(server) == []


def test_a_new_process_finds_it(
    served: str, server: Any, texts: Path, cached: dict[str, str]
) -> None:
    list(headrace.open(served, storage_options=cached))
    data_requests(server)
    ds = headrace.open(served, storage_options=cached)
    (found,) = children.answers_of("spawn", read_elsewhere, [(ds,)])
    assert found == [(s["__key__"], s["cls"]) for s in headrace.open(texts)]
    assert data_requests(server) == []


@pytest.mark.parametrize("read", ["list(ds)", "[b for b in ds.loader(batch_size=40)]", "ds[0]"])
def test_a_short_program_keeps_what_it_has_fetched(
    served: str, server: Any, cached: dict[str, str], read: str
) -> None:
    """It ends right after its last sample has come; the block may not be on the disk yet."""
    script = f"import headrace; ds = headrace.open({served!r}, storage_options={cached!r}); {read}"
    for asked in (True, False):
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        assert bool(data_requests(server)) == asked


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_short_worker_keeps_what_it_has_fetched(
    served: str, server: Any, cached: dict[str, str], method: str
) -> None:
    """As above: multiprocessing ends its children in its own way."""
    ds = headrace.open(served, storage_options=cached)
    data_requests(server)
    for asked in (True, False):
        child = multiprocessing.get_context(method).Process(target=operator.getitem, args=(ds, 0))
        child.start()
        child.join(240)
        assert child.exitcode == 0
        assert bool(data_requests(server)) == asked


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_share_one_cache(
    served: str, server: Any, texts: Path, cached: dict[str, str], method: str
) -> None:
    expected = [(s["__key__"], s["cls"]) for s in headrace.open(texts)]
    ds = headrace.open(served, storage_options=cached)
    assert ds[0]["cls"] == b"0"  # so that the parent has a cache when it forks
    found = children.answers_of(method, read_elsewhere, [(ds,)] * 3)
    assert found == [expected] * 3
    asked = data_requests(server)
    assert len(asked) == len({name for name, _ in asked}) == len(ds.shards)


def test_a_pickled_dataset_keeps_its_settings(
    served: str, server: Any, cached: dict[str, str]
) -> None:
    ds = headrace.open(served, storage_options=cached)
    expected = list(ds)
    data_requests(server)
    assert list(pickle.loads(pickle.dumps(ds))) == expected
    assert data_requests(server) == []


def test_the_environment_names_a_cache(
    served: str, server: Any, cached: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", cached["cache_dir"])
    monkeypatch.setenv("HEADRACE_CACHE_BYTES", "32MiB")
    list(headrace.open(served))
    data_requests(server)
    list(headrace.open(served))
    assert data_requests(server) == []
    said = json.loads(program("cache", "stat", "--json"))
    assert said["limit_bytes"] == 32 << 20
    assert said["bytes"] > 0


def test_without_a_directory_nothing_is_kept(served: str, server: Any) -> None:
    ds = headrace.open(served)
    ds[0]
    data_requests(server)
    for _ in range(2):
        ds[0]
        assert len(data_requests(server)) == 1


def test_a_dataset_that_was_replaced_is_seen_when_it_is_opened_anew(
    server: Any, texts: Path, photos: Path, cached: dict[str, str]
) -> None:
    shutil.copytree(texts, server.root / "set")
    ds = headrace.open(f"{server.url}/set", storage_options=cached)
    list(ds)
    for path in photos.iterdir():
        if path.is_file():
            shutil.copyfile(path, server.root / "set" / (path.name + ".new"))
            os.replace(server.root / "set" / (path.name + ".new"), server.root / "set" / path.name)
    again = headrace.open(f"{server.url}/set", storage_options=cached)
    assert again.version == headrace.open(photos).version != ds.version
    assert list(again) == list(headrace.open(photos))


def test_a_directory_with_something_else_in_it_is_named_and_local_paths_do_not_care(
    served: str, texts: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "thesis.tex").write_text("...")
    options = {"cache_dir": str(folder)}
    with pytest.raises(headrace.StateError, match="home"):
        headrace.open(served, storage_options=options)
    assert len(headrace.open(texts, storage_options=options)) == 400
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_a_directory_that_cannot_be_made_is_no_error(
    served: str, server: Any, texts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {"cache_dir": "/proc/headrace-cache"}
    assert list(headrace.open(served, storage_options=options)) == list(headrace.open(texts))
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith("headrace: the cache /proc/headrace-cache ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cache_dri": "/x"}, "cache_dir, cache_bytes"),
        ({"cache_bytes": "lots"}, "cache_bytes"),
        ({"cache_dir": "/x", "cache_memory_bytes": "-1"}, "cache_memory_bytes"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=words):
        headrace.open("s3://bucket/x", storage_options=options)


def test_the_program_reads_through_the_cache(
    served: str, server: Any, texts: Path, cached: dict[str, str], run_headrace: Callable[..., str]
) -> None:
    options = ("--cache-dir", cached["cache_dir"], "--cache-bytes", cached["cache_bytes"])
    local = run_headrace("cat", texts, "0042", "cls")
    assert program("cat", served, "0042", "cls", *options) == local
    assert len(data_requests(server)) == 1
    assert program("cat", served, "0042", "cls", *options, "--cache-memory", "0") == local
    assert program("cat", served, "0041", "cls", HEADRACE_CACHE_DIR=cached["cache_dir"]) == "41"
    assert data_requests(server) == []
    assert "in use" in program("cache", "stat", "--cache-dir", cached["cache_dir"])
    assert f"{server.url}/a set/" in program("cache", "ls", "--cache-dir", cached["cache_dir"])
    assert "cache_bytes" in program("ls", served, "--cache-bytes", "many", code=2)


def test_the_program_pins_and_removes(
    served: str, server: Any, cached: dict[str, str], run_headrace: Callable[..., str]
) -> None:
    cached["cache_memory_bytes"] = "0"  # what is not on the disk is asked for
    list(headrace.open(served, storage_options=cached))
    data_requests(server)
    where = ("--cache-dir", cached["cache_dir"])

    def told(action: str, *objects: str, code: int = 0) -> Any:
        return json.loads(program("cache", action, *objects, *where, "--json", code=code))

    objects = {one["name"]: one for one in told("ls")}
    (first, *_) = shards = sorted(name for name in objects if name.endswith(".tar"))
    assert told("pin", first) == {"objects": 1, "bytes": objects[first]["bytes"]}
    assert [one["name"] for one in told("ls") if one["pinned"]] == [first]
    assert told("stat")["pinned_bytes"] == objects[first]["bytes"]
    prefix = first[: first.rindex("/")] + "/*"
    assert told("unpin", prefix)["objects"] == len(objects)
    assert told("stat")["pinned_bytes"] == 0
    assert told("evict", first)["bytes"] == objects[first]["bytes"]
    assert first not in {one["name"] for one in told("ls")}
    list(headrace.open(served, storage_options=cached))
    assert {Path(name).name for name, _ in data_requests(server)} == {Path(first).name}
    assert told("verify")["damaged"] == 0
    assert told("clear")["bytes"] > 0
    assert told("stat")["blocks"] == 0
    assert len(shards) > 1
    assert "evict what?" in program("cache", "evict", *where, code=2)
    assert "no action 'shrink'" in program("cache", "shrink", *where, code=2)


def test_verify_looks_at_the_origin(served: str, server: Any, cached: dict[str, str]) -> None:
    list(headrace.open(served, storage_options=cached))
    data_requests(server)
    assert "no damage" in program("verify", served, HEADRACE_CACHE_DIR=cached["cache_dir"])
    assert data_requests(server) != []
