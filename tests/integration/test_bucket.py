"""A data set's whole way through a real bucket: packed into it, indexed in it, read, and trained from."""

from __future__ import annotations

import json
import operator
import os
from pathlib import Path
from typing import Any

import counting_proxy
import program
import pytest

import headrace

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def options(server: Any) -> dict[str, str]:
    """What leads headrace.open to the server."""
    return {
        "endpoint": server.endpoint,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
        "region": server.region,
        "dialect": server.dialect,
    }


@pytest.fixture
def place(server: Any, request: pytest.FixtureRequest) -> str:
    """A fresh prefix in the bucket."""
    return f"s3://{server.buckets[0]}/{request.node.name}"


def run(server: Any, *arguments: object, code: int = 0) -> str:
    """Run the program with the server's settings in its environment; return all that it says."""
    out, err = program.run(*arguments, code=code, environment=server.environment())
    return out.decode() + err


def test_a_set_is_packed_into_a_bucket_and_read(
    server: Any, options: dict[str, str], place: str, tmp_path: Path
) -> None:
    program.write_photos(tmp_path / "photos")
    run(server, "pack", tmp_path / "photos", tmp_path / "local", "--shard-samples", 20)
    run(
        server,
        "pack",
        tmp_path / "photos",
        place,
        "--shard-samples",
        20,
        "--staging",
        tmp_path / "staging",
    )
    assert program.tree(tmp_path / "staging") == {}
    local = headrace.open(tmp_path / "local")
    ds = headrace.open(place, storage_options=options)
    assert ds.version == local.version
    assert list(ds) == list(local)
    with ds.loader(batch_size=8, seed=1) as a, local.loader(batch_size=8, seed=1) as b:
        assert [batch["__key__"] for batch in a] == [batch["__key__"] for batch in b]
    assert run(server, "ls", place) == run(server, "ls", tmp_path / "local")
    assert "no damage" in run(server, "verify", place)
    said = run(
        server, "pack", tmp_path / "photos", place, "--staging", tmp_path / "staging", code=2
    )
    assert "already" in said


def test_tars_in_a_bucket_are_indexed_where_they_are(
    server: Any, options: dict[str, str], place: str, tmp_path: Path
) -> None:
    program.write_photos(tmp_path / "photos")
    run(
        server,
        "pack",
        tmp_path / "photos",
        place,
        "--shard-samples",
        20,
        "--staging",
        tmp_path / "s",
    )
    packed = headrace.open(place, storage_options=options)
    tars = [f"{place}/{name}" for name, _, _ in packed.shards]
    run(server, "index", *tars, "--output", tmp_path / "index")
    environment = {k: v for k, v in server.environment().items() if k not in os.environ}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        beside = headrace.open(tmp_path / "index")
        assert [s["__key__"] for s in beside] == [s["__key__"] for s in packed]
    report = json.loads(run(server, "index", *tars, "--output", f"{place}-index", "--json"))
    assert report["manifest"] == f"{place}-index/headrace.json"
    ds = headrace.open(f"{place}-index", storage_options=options)
    assert ds[3] == packed[3]


def test_a_set_in_a_bucket_is_packed_from_there(
    server: Any, options: dict[str, str], place: str, tmp_path: Path
) -> None:
    program.write_photos(tmp_path / "photos")
    local, staging = tmp_path / "local", tmp_path / "staging"
    run(server, "pack", tmp_path / "photos", local, "--shard-samples", 20)
    run(server, "pack", local, place, "--staging", staging)
    run(server, "pack", place, tmp_path / "again", "--shard-samples", 7)
    run(server, "pack", place, f"{place}-7", "--shard-samples", 7, "--staging", staging)
    assert program.tree(staging) == {}
    ours = headrace.open(tmp_path / "again")
    theirs = headrace.open(f"{place}-7", storage_options=options)
    assert ours.version == theirs.version
    key = operator.itemgetter("__key__")
    assert sorted(theirs, key=key) == sorted(headrace.open(local), key=key)


def test_tars_are_indexed_beside_themselves_and_not_copied(
    server: Any, options: dict[str, str], place: str, tmp_path: Path
) -> None:
    samples = {b"%d.bin" % number: bytes([number]) * 1_000_000 for number in range(24)}
    program.write_tar(tmp_path / "large.tar", samples)
    key = place.removeprefix(f"s3://{server.buckets[0]}/")
    server.put(f"{key}/large.tar", (tmp_path / "large.tar").read_bytes())
    with counting_proxy.running(server.endpoint) as proxy:
        through = {**server.environment(), "AWS_ENDPOINT_URL_S3": proxy.endpoint}
        # Looking for images' seek points takes all bytes, once; without that headers are enough.
        size = (tmp_path / "large.tar").stat().st_size
        for seek_points, most in (("8", 1.1 * size), ("off", size / 4)):
            proxy.forget()
            program.run("index", place, f"--seek-points={seek_points}", environment=through)
            assert 0 < proxy.bytes_sent(".tar") < most
    ds = headrace.open(place, storage_options=options)
    assert [sample["bin"] for sample in ds] == list(samples.values())


def test_what_is_wrong_is_told(server: Any, options: dict[str, str]) -> None:
    bucket = f"s3://{server.buckets[0]}"
    with pytest.raises(headrace.NotFoundError, match=f"{bucket}/nothing"):
        headrace.open(f"{bucket}/nothing", storage_options=options)
    with pytest.raises(headrace.HeadraceError, match="no-such-bucket"):
        headrace.open("s3://no-such-bucket/x", storage_options=options)
    wrong = options | {"secret_access_key": "not the secret"}
    with pytest.raises(headrace.HeadraceError) as caught:
        headrace.open(f"{bucket}/x", storage_options=wrong)
    assert caught.value.code_name == "permission denied"
    assert "not the secret" not in str(caught.value)
