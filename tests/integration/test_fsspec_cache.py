"""``hrcache::s3://``: fsspec's file system through the node's cache, on a real bucket, and what uses it."""

from __future__ import annotations

import errno
import io
import multiprocessing
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import children
import pytest

import headrace

fsspec = pytest.importorskip("fsspec")
import headrace.fsspec_cache  # noqa: E402  registers hrcache, also where no wheel is installed

BLOB = random.Random(3).randbytes(9_000_000)  # three blocks
OBJECTS = {
    "set/blob.bin": BLOB,
    "set/lines.txt": b"first line\nsecond\nthird\n",
    "set/deep/er/x.txt": b"x",
    "odd/a b+c~\u00e9(1).bin": b"odd",
}


@pytest.fixture(scope="module")
def server(server: Any) -> Any:
    """A SeaweedFS server whose bucket has OBJECTS."""
    for key, data in OBJECTS.items():
        server.put(key, data)
    return server


@pytest.fixture
def options(server: Any, tmp_path: Path) -> dict[str, Any]:
    """Storage options: the server, and a cache of this test."""
    return {
        "endpoint": server.endpoint,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
        "region": server.region,
        "dialect": server.dialect,
        "cache_dir": str(tmp_path / "cache"),
        "cache_bytes": "256MiB",
    }


@pytest.fixture
def bucket(server: Any) -> str:
    return f"s3://{server.buckets[0]}"


@pytest.fixture
def fs(options: dict[str, Any], bucket: str) -> Any:
    return fsspec.core.url_to_fs(f"hrcache::{bucket}", **options)[0]


def origin_bytes(fs: Any) -> int:
    """Bytes that the process has fetched from the bucket through the cache."""
    stats = fs.cache_stats()
    assert stats is not None
    return int(stats["origin_bytes"])


def test_names_are_listed_and_found(fs: Any, bucket: str) -> None:
    assert fs.ls(f"{bucket}/set", detail=False) == [
        f"{bucket}/set/blob.bin",
        f"{bucket}/set/deep",
        f"{bucket}/set/lines.txt",
    ]
    listed = {entry["name"]: entry for entry in fs.ls(f"{bucket}/set/")}
    info = fs.info(f"{bucket}/set/blob.bin")
    assert info["size"] == len(BLOB)
    assert info["type"] == "file"
    assert listed[info["name"]]["size"] == info["size"]
    assert listed[f"{bucket}/set/deep"]["type"] == "directory"
    # As fsspec's class for s3 leaves a name when it takes a chain apart.
    relative = bucket.removeprefix("s3://")
    for pattern in (f"{bucket}/set/*.txt", f"{relative}/set/*.txt"):
        assert fs.glob(pattern) == [f"{bucket}/set/lines.txt"]
    whole = f"hrcache://{bucket}/set"
    assert fs.glob(f"{whole}/*.txt") == [f"{whole}/lines.txt"]
    assert fs.cat(f"{whole}/*.txt") == {f"{whole}/lines.txt": OBJECTS["set/lines.txt"]}
    assert fs.glob(f"{bucket}/set/**/*.txt") == [
        f"{bucket}/set/deep/er/x.txt",
        f"{bucket}/set/lines.txt",
    ]
    assert sorted(fs.find(bucket)) == sorted(f"{bucket}/{key}" for key in OBJECTS)
    assert fs.exists(f"{bucket}/set") and fs.isdir(f"{bucket}/set")
    assert not fs.exists(f"{bucket}/nothing") and not fs.isfile(f"{bucket}/set")


def test_all_ways_to_read_give_the_same_bytes(fs: Any, bucket: str) -> None:
    blob, lines = f"{bucket}/set/blob.bin", f"{bucket}/set/lines.txt"
    assert fs.cat(blob) == BLOB
    assert fs.cat_file(blob, -7, -2) == BLOB[-7:-2]
    assert fs.cat([lines, f"{bucket}/set/deep/er/x.txt"])[lines] == OBJECTS["set/lines.txt"]
    draw = random.Random(5)
    starts = [draw.randrange(len(BLOB)) for _ in range(50)]
    ends = [start + draw.randrange(100_000) for start in starts]
    expected = [BLOB[start:end] for start, end in zip(starts, ends, strict=True)]
    assert fs.cat_ranges([blob] * 50, starts, ends) == expected
    assert fs.read_block(lines, 2, 10, delimiter=b"\n") == b"second\n"
    assert fs.head(blob, 10) + fs.tail(blob, 10) == BLOB[:10] + BLOB[-10:]
    with fs.open(lines, "r") as text:
        assert text.readlines() == ["first line\n", "second\n", "third\n"]
    assert fs.cat(f"{bucket}/odd/a b+c~\u00e9(1).bin") == b"odd"


def test_a_file_is_a_file(fs: Any, bucket: str) -> None:
    draw = random.Random(6)
    with fs.open(f"{bucket}/set/blob.bin") as file, io.BytesIO(BLOB) as model:
        assert file.size == len(BLOB)
        for _ in range(300):
            match draw.randrange(4):
                case 0:
                    offset = draw.randrange(len(BLOB) + 10)
                    assert file.seek(offset) == model.seek(offset)
                case 1:
                    amount = draw.choice([0, 1, 100, 5_000, 200_000, 3_000_000])
                    assert file.read(amount) == model.read(amount)
                case 2:
                    one, two = bytearray(70_000), bytearray(70_000)
                    assert file.readinto(one) == model.readinto(two)
                    assert one == two
                case _:
                    assert file.tell() == model.tell()
        file.seek(-5, io.SEEK_END)
        assert file.read() == BLOB[-5:]
        assert file.read(1) == b""
        assert file.readinto(bytearray(3)) == 0


def test_a_second_read_comes_from_the_cache(fs: Any, bucket: str, options: dict[str, Any]) -> None:
    for _ in range(2):
        assert fs.cat(f"{bucket}/set/blob.bin") == BLOB
        assert origin_bytes(fs) == len(BLOB)
    with fs.open(f"{bucket}/set/blob.bin") as file:
        file.seek(5_000_000)
        assert file.read(1000) == BLOB[5_000_000:5_001_000]
    assert origin_bytes(fs) == len(BLOB)
    code = (
        "import sys, fsspec, headrace.fsspec_cache\n"
        "fs, path = fsspec.core.url_to_fs(sys.argv[1], **eval(sys.argv[2]))\n"
        "assert fs.size(path) == len(fs.cat(path))\n"
        "print(fs.cache_stats()['origin_bytes'], fs.cache_stats()['disk_bytes'])\n"
    )
    arguments = [f"hrcache::{bucket}/set/blob.bin", repr(options)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", str(len(BLOB))]


def read_blob(url: str, options: dict[str, Any], gate: Any, answers: Any) -> None:
    """Read an object when all are ready; send home whether it is right, and what it cost."""
    import headrace.fsspec_cache  # noqa: F401

    fs, path = fsspec.core.url_to_fs(url, **options)
    gate.wait(children.PATIENCE_SECONDS)
    right = fs.cat(path) == BLOB
    answers.put((right, fs.cache_stats()))


def test_two_processes_fetch_once(bucket: str, options: dict[str, Any]) -> None:
    gate = multiprocessing.get_context("spawn").Barrier(2)
    url = f"hrcache::{bucket}/set/blob.bin"
    found = children.answers_of("spawn", read_blob, [(url, options, gate)] * 2)
    assert [right for right, _ in found] == [True, True]
    fetched = sum(stats["origin_bytes"] - stats["hedge_bytes"] for _, stats in found)
    assert fetched == len(BLOB)


def test_it_works_in_a_forked_child_and_pickled(fs: Any, bucket: str) -> None:
    file = fs.open(f"{bucket}/set/blob.bin")
    assert file.read(100) == BLOB[:100]

    def read_again(answers: Any) -> None:
        again = pickle.loads(pickle.dumps(file))
        answers.put((file.read(300_000), again.read(5), fs.cat(f"{bucket}/set/lines.txt")))

    (found,) = children.answers_of("fork", read_again, [()])
    assert found == (BLOB[100:300_100], BLOB[100:105], OBJECTS["set/lines.txt"])
    assert file.read(50) == BLOB[100:150]
    assert pickle.loads(pickle.dumps(fs)).cat(f"{bucket}/set/deep/er/x.txt") == b"x"


def test_what_is_replaced_is_never_mixed(fs: Any, server: Any, bucket: str) -> None:
    server.put("changing", b"old" * 1_000_000)
    file = fs.open(f"{bucket}/changing")
    server.put("changing", b"new!" * 1_000_000)
    with pytest.raises(OSError, match="replaced") as caught:
        file.read()
    assert caught.value.errno == errno.ESTALE
    assert fs.cat(f"{bucket}/changing") == b"new!" * 1_000_000


def test_errors_are_those_that_users_of_fsspec_expect(
    fs: Any, bucket: str, options: dict[str, Any]
) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        fs.open(f"{bucket}/nothing")
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{bucket}/nothing")
    with pytest.raises(IsADirectoryError):
        fs.open(f"{bucket}/set")
    for write in (
        lambda: fs.open(f"{bucket}/new", "wb"),
        lambda: fs.pipe(f"{bucket}/new", b""),
        lambda: fs.rm(f"{bucket}/set/lines.txt"),
        lambda: fs.mkdir(f"{bucket}/folder"),
    ):
        with pytest.raises(OSError, match="only reads") as caught:
            write()
        assert caught.value.errno == errno.EROFS
    wrong = options | {"secret_access_key": "not the secret"}
    stranger = fsspec.filesystem("hrcache", target_protocol="s3", **wrong)
    for call in (stranger.exists, stranger.cat, stranger.glob):
        with pytest.raises(PermissionError) as refused:
            call(f"{bucket}/set/*" if call == stranger.glob else f"{bucket}/set/lines.txt")
        assert "not the secret" not in str(refused.value)
        assert isinstance(refused.value.__cause__, headrace.HeadraceError)
    with pytest.raises(headrace.InvalidArgumentError, match="hrcache::s3://"):
        fsspec.filesystem("hrcache", target_protocol="ftp")
    for path in ("hrcache:///etc/passwd", "hrcache://hrcache://s3://b/k", "no/url"):
        with pytest.raises(headrace.InvalidArgumentError, match="is no URL"):
            fsspec.filesystem("hrcache", **options).open(path)
    fsspec.filesystem("hrcache", target_protocol="s3", file={"auto_mkdir": True}, **options)
    with pytest.raises(headrace.InvalidArgumentError, match="cache_dir"):
        fsspec.filesystem("hrcache", target_protocol="s3", cache_folder="/x")


def test_both_ways_to_write_a_url(bucket: str, options: dict[str, Any]) -> None:
    for url in (f"hrcache::{bucket}/set/lines.txt", f"hrcache://{bucket}/set/lines.txt"):
        with fsspec.open(url, "rt", **options) as file:
            assert file.readline() == "first line\n"


# --- What reads through it


def test_pandas(server: Any, bucket: str, options: dict[str, Any]) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"n": range(50_000), "text": [f"row {i}" for i in range(50_000)]})
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    server.put("tables/t.parquet", buffer.getvalue())
    server.put("tables/t.csv", frame.head(1000).to_csv(index=False).encode())
    url = f"hrcache::{bucket}/tables"
    found = pandas.read_parquet(f"{url}/t.parquet", storage_options=options)
    pandas.testing.assert_frame_equal(found, frame)
    found = pandas.read_csv(f"{url}/t.csv", storage_options=options)
    pandas.testing.assert_frame_equal(found, frame.head(1000))


def test_pyarrow(server: Any, fs: Any, bucket: str) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    import pyarrow.parquet

    table = pyarrow.table({"n": list(range(100_000))})
    for part in range(3):
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(table.slice(part * 30_000, 30_000), buffer)
        server.put(f"parts/{part}.parquet", buffer.getvalue())
    parts = dataset.dataset(f"{bucket}/parts", filesystem=fs, format="parquet")
    rows = parts.to_table(filter=dataset.field("n") >= 59_000)["n"].to_pylist()
    assert sorted(rows) == list(range(59_000, 90_000))
    before = origin_bytes(fs)
    assert parts.to_table().num_rows == 90_000
    assert origin_bytes(fs) == before


def test_safetensors_and_torch(server: Any, fs: Any, bucket: str) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {"a": torch.arange(100_000, dtype=torch.float32), "b": torch.ones(3, 5)}
    server.put("model.safetensors", safetensors.save(tensors))
    buffer = io.BytesIO()
    torch.save({"weights": tensors, "step": 7}, buffer)
    server.put("model.pt", buffer.getvalue())
    loaded = safetensors.load(fs.cat(f"{bucket}/model.safetensors"))
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    with fs.open(f"{bucket}/model.pt") as file:
        checkpoint = torch.load(file, weights_only=True)
    assert checkpoint["step"] == 7
    assert torch.equal(checkpoint["weights"]["a"], tensors["a"])


def test_hugging_face_datasets(
    server: Any,
    bucket: str,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    server.put("json/a.jsonl", b'{"n": 1}\n{"n": 2}\n')
    server.put("json/b.jsonl", b'{"n": 3}\n')
    found = datasets.load_dataset(
        "json",
        data_files=f"hrcache://{bucket}/json/*.jsonl",
        split="train",
        streaming=True,
        storage_options=options,
    )
    assert [row["n"] for row in found] == [1, 2, 3]
