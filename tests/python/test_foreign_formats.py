"""TFRecord and MDS in place: what a user gets. Every value against the original readers' is in
src/headrace/dataset/foreign_formats_test.cc."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace import transforms as T

GOLDEN = Path(__file__).parents[1] / "compat" / "dataset"


def array(data: bytes) -> np.ndarray:
    return np.load(io.BytesIO(data), allow_pickle=False)


@pytest.fixture
def tfrecord(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "tfrecord", tmp_path / "t"))


@pytest.fixture
def mds(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "mds" / "plain", tmp_path / "m"))


def test_tfrecord_samples(tfrecord: Path) -> None:
    ds = headrace.open(tfrecord)
    assert (ds.kind, len(ds)) == ("tfrecord", 8)
    sample = ds["small.tfrecord-00001-of-00002/00000001"]
    assert sample["image/format"] == b"jpeg"
    assert sample["image/encoded"][:2] == b"\xff\xd8"
    label = array(sample["image/class/label"])
    assert label.dtype == np.int64 and label.tolist() == [5 % 3]
    assert array(sample["edges"]).tolist() == [0, -1, 2**63 - 1, -(2**63), 127, 128]
    assert array(sample["tokens"]).tolist() == [(-3) ** k for k in range(25)]
    assert array(ds[3]["boxes"]).dtype == np.float32
    assert ds[3]["names"] == b"name 0" and ds[3]["names[2]"] == b"name 2"
    assert "names" not in ds[0]


def loader_settings() -> dict:
    return {
        "batch_size": 4,
        "seed": 3,
        "output": "numpy",
        "transforms": {"image/encoded": T.imagenet_eval(4), "image/class/label": T.label()},
    }


def test_tfrecord_in_the_loader(tfrecord: Path) -> None:
    in_place = headrace.open(tfrecord)
    seen = []
    for batch in in_place.loader(**loader_settings()):
        assert batch["image/encoded"].shape == (4, 3, 4, 4)
        seen += batch["image/class/label"].tolist()
    assert sorted(seen) == sorted(i % 3 for i in range(8))


def test_mds_samples(mds: Path) -> None:
    ds = headrace.open(mds)
    assert (ds.kind, len(ds)) == ("mds", 6)
    sample = ds[4]
    assert sample["str"].decode() == "gr\u00fc\u00dfe " * 4
    assert json.loads(sample["json"])["i"] == 4
    assert array(sample["int"]).shape == () and array(sample["int"]) == -4
    assert array(sample["float16"]).dtype == np.float16
    assert array(sample["nd_i16_2x3"]).tolist() == [[-4, -3, -2], [-1, 0, 1]]
    assert array(sample["pil"]).shape == (2, 3)


def test_mds_in_the_loader(mds: Path) -> None:
    views = {"jpeg": T.imagenet_eval(4), "int": T.label(), "nd_i16_2x3": T.label(shape=(2, 3))}
    seen: list[int] = []
    loader = headrace.open(mds).loader(batch_size=3, seed=1, output="numpy", transforms=views)
    for batch in loader:
        assert batch["nd_i16_2x3"].shape == (3, 2, 3)
        seen += batch["int"].tolist()
    assert sorted(seen) == [-5, -4, -3, -2, -1, 0]


def test_compressed_mds_with_little_memory() -> None:
    ds = headrace.open(GOLDEN / "mds" / "zstd", max_unpacked_bytes=1)
    assert [array(s["label"]).item() for s in ds] == list(range(20))


def test_pickles_are_refused() -> None:
    with pytest.raises(headrace.HeadraceError, match="pickled object can run any code"):
        headrace.open(GOLDEN / "mds" / "pickle")


def test_a_bad_record_is_skipped(tfrecord: Path) -> None:
    path = tfrecord / "small.tfrecord-00000-of-00002"
    data = bytearray(path.read_bytes())
    data[data.index(b"\xff\xd8") + 30] ^= 1
    path.write_bytes(data)
    ds = headrace.open(tfrecord)
    with pytest.raises(headrace.DataLossError) as fault:
        for sample in ds:
            del sample
    assert fault.value.key.startswith("small.tfrecord-00000-of-00002/")
    rows = sum(
        len(batch["image/class/label"]) for batch in ds.loader(**loader_settings(), on_error="skip")
    )
    assert rows == 7


@pytest.mark.parametrize("source", ["tfrecord", "mds"])
def test_packed_they_give_the_same_samples(
    source: str, request: pytest.FixtureRequest, tmp_path: Path, run_headrace: Callable[..., str]
) -> None:
    folder = request.getfixturevalue(source)
    run_headrace("pack", folder, tmp_path / "packed", "--shard-samples", "3", "--quiet")
    in_place, packed = headrace.open(folder), headrace.open(tmp_path / "packed")
    assert packed.kind == "tar"
    assert len(packed.shards) > 1
    for before, after in zip(in_place, packed, strict=True):
        assert after == {name.replace("/", "."): value for name, value in before.items()}
    run_headrace("verify", tmp_path / "packed")
