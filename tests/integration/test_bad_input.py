"""What a user is told when a place or a file is not as it should be.

Each case runs through the program (exit code and message) and through Python (exception and
message). With a cache in between, the cache is checked at the end of each.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import program
import pytest
import scripted_s3

import headrace

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/compat/dataset"


Refusal = scripted_s3.Refusal
SHARDS = 3


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let all reads of buckets go through a cache, which must be whole at the end."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(folder))
    yield folder
    if folder.exists():
        report = program.run_json("cache", "verify", "--cache-dir", folder)
        assert report["damaged"] == 0


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A scripted bucket with a packed data set in ``set/``, which the environment leads to."""
    root = tmp_path / "bucket"
    program.write_photos(tmp_path / "photos", classes=3, per_class=10)
    program.run("pack", tmp_path / "photos", root / "set", "--shard-samples", 10, "--quiet")
    with scripted_s3.running(root) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server


SET = f"s3://{scripted_s3.BUCKET}/set"


def refused(
    place: object,
    error: type[headrace.HeadraceError],
    name: str,
    words: list[str],
    *,
    code: int,
    options: dict[str, str] | None = None,
) -> None:
    """Check that a place is refused with these words, in Python and by the program."""
    with pytest.raises(error) as caught:
        ds = headrace.open(str(place), storage_options=options)
        for number in range(len(ds)):
            ds[number]
    assert caught.value.code_name == name
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in {caught.value}"
    assert "scripted-secret-key" not in str(caught.value)
    out, err = program.run("verify", place, code=code)
    text = err + out.decode()
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"
    assert "scripted-secret-key" not in text


def test_a_scheme_that_is_none() -> None:
    refused(
        "gs://bucket/set",
        headrace.InvalidArgumentError,
        "invalid argument",
        ["gs://", "s3://", "https://"],
        code=program.USAGE,
    )


def test_a_bucket_that_is_not_there(bucket: Any) -> None:
    refused(
        "s3://missing/set",
        headrace.NotFoundError,
        "not found",
        ["no bucket 'missing'", bucket.url, "check its name"],
        code=program.BAD_DATA,
        options=bucket.options(),
    )


def deny(wanted: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return a rule that does not allow the requests that are wanted."""
    return lambda asked: Refusal(403, "AccessDenied") if wanted(asked) else None


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (deny(lambda asked: not asked.is_list), ["s3:GetObject", "bucket 'bucket'"]),
        (lambda asked: Refusal(400, "ExpiredToken"), ["expired: get new ones"]),
    ],
    ids=["one may list and not read", "credentials that have expired"],
)
def test_what_the_server_does_not_allow(bucket: Any, rule: Any, words: list[str]) -> None:
    bucket.rule = rule
    refused(
        SET,
        headrace.HeadraceError,
        "permission denied",
        [*words, "s3://bucket/set"],
        code=program.ENVIRONMENT,
        options=bucket.options(),
    )


def test_one_may_read_and_not_list(bucket: Any) -> None:
    root = bucket.root
    # As S3 does: who may not list is told "not allowed" of what is not there, too.
    bucket.rule = deny(lambda asked: asked.is_list or not (root / asked.key).is_file())
    ds = headrace.open(SET, storage_options=bucket.options())
    assert len([ds[number] for number in range(len(ds))]) == 30
    program.run("verify", SET)
    (root / "set/headrace.json").unlink()
    refused(
        SET,
        headrace.HeadraceError,
        "permission denied",
        ["s3:ListBucket", "bucket 'bucket'"],
        code=program.ENVIRONMENT,
        options=bucket.options(),
    )


def test_the_wrong_region(bucket: Any) -> None:
    # A region that the answer names is tried; nobody is bothered.
    wrong = Refusal(400, "AuthorizationHeaderMalformed", "<Region>eu-west-9</Region>")
    bucket.rule = lambda asked: wrong if asked.region != "eu-west-9" else None
    assert len(headrace.open(SET, storage_options=bucket.options())) == 30
    program.run("ls", SET)
    moved = Refusal(301, "PermanentRedirect", headers={"x-amz-bucket-region": "ap-south-9"})
    bucket.rule = lambda asked: moved
    refused(
        SET,
        headrace.StateError,
        "failed precondition",
        ["ap-south-9", "bucket 'bucket'", "set region or endpoint"],
        code=program.BAD_DATA,
        options=bucket.options(),
    )


def test_credentials_that_expire_while_it_is_read(bucket: Any) -> None:
    ds = headrace.open(SET, storage_options=bucket.options())
    first = ds[0]
    bucket.rule = lambda asked: Refusal(400, "ExpiredToken")
    with pytest.raises(headrace.HeadraceError, match="expired: get new ones") as caught:
        ds[len(ds) - 1]
    assert caught.value.code_name == "permission denied"
    bucket.rule = lambda asked: None
    assert ds[0] == first
    assert ds[len(ds) - 1]


def shard_paths(bucket: Any) -> list[Path]:
    """Return the shards' files in order."""
    return sorted((bucket.root / "set").glob("*.tar"))


def test_an_object_that_is_replaced_while_it_is_read(bucket: Any) -> None:
    ds = headrace.open(SET, storage_options=bucket.options())
    before = {sample["__key__"]: sample for sample in ds}
    ds = headrace.open(SET, storage_options=bucket.options() | {"connections": "2"})
    ds[0]
    shard = shard_paths(bucket)[0]
    data = bytearray(shard.read_bytes())
    for at in range(3000, len(data), 5000):
        data[at] ^= 1
    shard.write_bytes(bytes(data))
    for number in range(len(ds)):
        try:
            sample = ds[number]
        except headrace.HeadraceError as error:
            assert error.code_name in ("failed precondition", "data loss"), error
            assert shard.name in str(error)
        else:
            assert sample == before[sample["__key__"]], "of the version that was opened"


def test_a_shard_that_is_deleted_in_mid_epoch(bucket: Any) -> None:
    ds = headrace.open(SET, storage_options=bucket.options())
    last = shard_paths(bucket)[-1]
    with ds.loader(batch_size=2, shuffle=False) as loader:
        batches = iter(loader)
        next(batches)
        last.unlink()
        with pytest.raises(headrace.HeadraceError) as caught:
            for _ in batches:
                pass
    assert last.name in str(caught.value)
    assert caught.value.code_name == "not found"
    _, said = program.run("verify", SET, code=program.BAD_DATA)
    assert last.name in said
    assert "headrace index" in said


def test_an_index_that_is_older_than_its_shard(bucket: Any) -> None:
    shard = shard_paths(bucket)[1]
    program.write_photos(bucket.root / "other", classes=1, per_class=12)
    program.run("pack", bucket.root / "other", bucket.root / "packed", "--quiet")
    shutil.copy(bucket.root / "packed/shard-000000.tar", shard)
    for place in (SET, bucket.root / "set"):
        refused(
            place,
            headrace.HeadraceError,
            caught_name(place),
            [shard.name, "index"],
            code=program.BAD_DATA,
            options=bucket.options() if str(place) == SET else None,
        )


def caught_name(place: object) -> str:
    """Return what reading a shard that another one has replaced is called."""
    with pytest.raises(headrace.HeadraceError) as caught:
        ds = headrace.open(str(place))
        for number in range(len(ds)):
            ds[number]
    assert caught.value.code_name in ("failed precondition", "data loss")
    return str(caught.value.code_name)


def record_offset(data: bytes, number: int) -> int:
    """Return where a record of a TFRecord file begins."""
    at = 0
    for _ in range(number):
        at += 16 + struct.unpack_from("<Q", data, at)[0]
    return at


def damage_tfrecord(folder: Path, how: str) -> Path:
    """Cut the first file in its third record, or flip a bit of that record's data."""
    path = sorted(folder.glob("*.tfrecord-*"))[0]
    data = bytearray(path.read_bytes())
    at = record_offset(data, 2)
    if how == "cut":
        del data[at + 40 :]
    else:
        data[at + 12 + 30] ^= 4
    path.write_bytes(bytes(data))
    return path


@pytest.mark.parametrize("how", ["cut", "a wrong checksum"])
@pytest.mark.parametrize("where", ["here", "in a bucket"])
def test_a_damaged_tfrecord(bucket: Any, how: str, where: str) -> None:
    folder = Path(shutil.copytree(GOLDEN / "tfrecord", bucket.root / "records"))
    path = damage_tfrecord(folder, how)
    remote = where == "in a bucket"
    place = "s3://bucket/records" if remote else str(folder)
    refused(
        place,
        headrace.DataLossError,
        "data loss",
        [path.name],
        code=program.BAD_DATA,
        options=bucket.options() if remote else None,
    )
    said = program.run("index", folder, code=program.BAD_DATA)[1]
    assert path.name in said
    assert "--allow-damage" in said


@pytest.mark.parametrize("where", ["here", "in a bucket"])
def test_mds_with_a_missing_shard(bucket: Any, where: str) -> None:
    folder = Path(shutil.copytree(GOLDEN / "mds/plain", bucket.root / "mds"))
    (folder / "shard.00001.mds").unlink()
    remote = where == "in a bucket"
    refused(
        "s3://bucket/mds" if remote else folder,
        headrace.StateError,
        "failed precondition",
        ["shard.00001.mds", "Copy the whole dataset"],
        code=program.BAD_DATA,
        options=bucket.options() if remote else None,
    )


@pytest.mark.parametrize("encoding", ["pkl", "somebody's own"])
def test_mds_with_an_encoding_that_is_not_read(bucket: Any, encoding: str) -> None:
    folder = Path(shutil.copytree(GOLDEN / "mds/plain", bucket.root / "mds"))
    index = json.loads((folder / "index.json").read_text())
    column = index["shards"][0]["column_names"][0]
    index["shards"][0]["column_encodings"][0] = encoding
    (folder / "index.json").write_text(json.dumps(index))
    refused(
        "s3://bucket/mds",
        headrace.HeadraceError,
        "not supported",
        ["index.json", f"column '{column}'", f"'{encoding}'", "Write the column again"],
        code=program.USAGE,
        options=bucket.options(),
    )


def test_no_message_holds_a_secret_of_the_environment(bucket: Any) -> None:
    bucket.rule = lambda asked: Refusal(
        403, "SignatureDoesNotMatch", f"<StringToSign>{asked.headers}</StringToSign>"
    )
    said = program.run("ls", SET, code=program.ENVIRONMENT)[1]
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in said
    assert re.search("secret access key", said)
