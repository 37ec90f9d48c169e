"""The map-style dataset: access, pickling, and PyTorch's DataLoader under every start method."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import headrace


def test_len_access_and_fields(photos: Path, photo_folder: Path) -> None:
    ds = headrace.open(photos)
    assert len(ds) == 60
    assert ds.fields == ["cls", "jpg"]
    sample = ds[0]
    assert set(sample) == {"jpg", "cls", "__key__"}
    assert sample["jpg"] == (photo_folder / f"{sample['__key__']}.jpg").read_bytes()
    assert int(sample["cls"]) == int(sample["__key__"][5])
    assert ds[-1] == ds[59]


def test_access_by_key(photos: Path) -> None:
    ds = headrace.open(photos)
    for i in (0, 17, 59):
        key = ds.key(i)
        assert ds.index_of(key) == i
        assert ds[key] == ds[i] == ds[key.encode()]
        assert key in ds
    assert "no/such/key" not in ds
    with pytest.raises(headrace.NotFoundError, match="no/such/key"):
        ds["no/such/key"]
    with pytest.raises(LookupError):
        ds["no/such/key"]


@pytest.mark.parametrize("index", [60, -61, 10**12])
def test_index_out_of_range(photos: Path, index: int) -> None:
    with pytest.raises(IndexError):
        headrace.open(photos)[index]


def test_slices_and_iteration(photos: Path) -> None:
    ds = headrace.open(photos)
    assert [s["__key__"] for s in ds[10:20:3]] == [ds.key(i) for i in range(10, 20, 3)]
    assert [s["__key__"] for s in ds[::-1]][:2] == [ds.key(59), ds.key(58)]
    assert [s["__key__"] for s in ds] == [ds.key(i) for i in range(60)]
    assert ds.__getitems__([3, 1]) == [ds[3], ds[1]]


def test_only_named_fields_are_read(photos: Path) -> None:
    ds = headrace.open(photos, fields=["cls"])
    assert set(ds[0]) == {"cls", "__key__"}
    with pytest.raises(headrace.NotFoundError, match="png"):
        headrace.open(photos, fields=["png"])


def test_no_field_is_a_choice_too(photos: Path) -> None:
    ds = headrace.open(photos, fields=[])
    assert ds.fields == [] and ds[3] == {"__key__": headrace.open(photos).key(3)}


def test_pickle_is_small_and_works(photos: Path) -> None:
    ds = headrace.open(photos)
    data = pickle.dumps(ds)
    assert len(data) < 1000
    assert pickle.loads(data)[5] == ds[5]


def test_pickle_refuses_another_version(texts: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(texts, copy)
    ds = headrace.open(copy)
    data = pickle.dumps(ds)
    shutil.rmtree(copy)
    shutil.copytree(texts.parent / texts.name, copy)
    assert pickle.loads(data)[0] == ds[0]
    (copy / "headrace.json").unlink()
    with pytest.raises(headrace.HeadraceError):
        pickle.loads(data)


def test_plain_folder_in_place_gives_the_same_samples(photos: Path, photo_folder: Path) -> None:
    plain, packed = headrace.open(photo_folder), headrace.open(photos)
    assert plain.kind == "folder"
    assert {s["__key__"]: s for s in plain} == {s["__key__"]: s for s in packed}


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_torch_dataloader_workers(photos: Path, method: str) -> None:
    script = f"""
import headrace
from torch.utils.data import DataLoader

def collate(samples):
    return [(s["__key__"], len(s["jpg"])) for s in samples]

if __name__ == "__main__":
    ds = headrace.open({os.fspath(photos)!r})
    ds[3]  # the parent has used it
    loader = DataLoader(ds, batch_size=7, num_workers=2, collate_fn=collate,
                        multiprocessing_context={method!r})
    seen = [key for batch in loader for key, _ in batch]
    assert seen == [ds.key(i) for i in range(60)], seen
    print("ok")
"""
    path = photos.parent / f"workers_{method}.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "ok"


def test_missing_path_says_so(tmp_path: Path) -> None:
    with pytest.raises(headrace.NotFoundError, match="nowhere"):
        headrace.open(tmp_path / "nowhere")


def test_import_brings_neither_numpy_nor_torch() -> None:
    code = "import sys, headrace; print('numpy' in sys.modules or 'torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_threads_share_one_dataset(photos: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    ds = headrace.open(photos)
    expected = [ds[i] for i in range(60)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            assert list(pool.map(ds.__getitem__, range(60))) == expected
