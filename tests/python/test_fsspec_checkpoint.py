"""Checkpoints as files: the fsspec protocol hrckpt."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest
import torch
from headrace.fsspec_checkpoint import CheckpointFileSystem

import headrace
from headrace.checkpoint import Checkpointer

safetensors = pytest.importorskip("safetensors.torch")


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Two checkpoints."""
    state = {
        "model": {
            "w": torch.arange(3000.0).reshape(30, 100),
            "one": torch.arange(50, dtype=torch.int16).reshape(1, 1, 50),
            "scalar": torch.tensor(2.5, dtype=torch.bfloat16),
            "empty": torch.empty(0, 3),
        },
        "a/b @ü": {"c": torch.ones(3, dtype=torch.bool)},
        "top": torch.arange(4),
    }
    with Checkpointer(tmp_path / "run@home") as checkpointer:
        for step in (1, 20):
            state["model"]["w"] += step  # type: ignore[index]
            checkpointer.save(step, state, wait="local")
    return f"hrckpt://{tmp_path}/run@home"


def test_a_model_as_one_safetensors_file(store: str) -> None:
    with fsspec.open(f"{store}@latest/model.safetensors") as file:
        model = safetensors.load(file.read())
    assert set(model) == {"w", "one", "scalar", "empty"}
    assert torch.equal(model["w"], torch.arange(3000.0).reshape(30, 100) + 21)
    assert model["one"].dtype == torch.int16 and model["one"].shape == (1, 1, 50)
    assert model["scalar"].item() == 2.5 and model["empty"].shape == (0, 3)
    with fsspec.open(f"{store}@1/state.safetensors") as file:
        state = safetensors.load(file.read())
    assert torch.equal(state["model.w"], torch.arange(3000.0).reshape(30, 100) + 1)
    assert state["top"].tolist() == [0, 1, 2, 3] and state["a/b @ü.c"].tolist() == [True] * 3


def test_looking(store: str) -> None:
    fs = CheckpointFileSystem()
    assert fs.ls(store, detail=False) == [f"{store[9:]}@1", f"{store[9:]}@20"]
    files = fs.ls(f"{store}@20")
    names = [entry["name"].rpartition("/")[2] for entry in files]
    assert names == [
        *("manifest.json", "state.safetensors"),
        *("a%2Fb%20%40%C3%BC.safetensors".replace("%20", " "), "model.safetensors"),
    ]
    for entry in files:
        assert len(fs.cat_file(entry["name"])) == entry["size"] == fs.info(entry["name"])["size"]
    assert fs.isdir(store) and fs.isdir(f"{store}@1") and fs.isfile(files[0]["name"])
    assert fs.find(f"{store}@20") == sorted(entry["name"] for entry in files)
    manifest = json.loads(fs.cat_file(f"{store}@latest/manifest.json"))
    assert manifest["step"] == 20
    assert {"path": "/model/w", "dtype": "F32", "shape": [30, 100]} in manifest["tensors"]


def test_any_range(store: str) -> None:
    fs = CheckpointFileSystem()
    name = f"{store}@20/state.safetensors"
    whole = fs.cat_file(name)
    for start in range(0, len(whole), 991):
        for length in (1, 5, 400, 5000):
            assert fs.cat_file(name, start, start + length) == whole[start : start + length]
    assert fs.cat_file(name, -10) == whole[-10:]


def test_what_is_not_there(store: str, tmp_path: Path) -> None:
    fs = CheckpointFileSystem()
    for name in (f"{store}@3/manifest.json", f"{store}@20/other.safetensors", f"{store}@20/x/y"):
        assert not fs.exists(name)
        with pytest.raises(FileNotFoundError):
            fs.open(name)
    with pytest.raises(IsADirectoryError):
        fs.open(f"{store}@20")
    with pytest.raises(headrace.InvalidArgumentError, match="STORE@STEP"):
        fs.ls("hrckpt://")


def test_nothing_can_be_written(store: str) -> None:
    fs = CheckpointFileSystem()
    for change in (
        lambda: fs.open(f"{store}@20/model.safetensors", "wb"),
        lambda: fs.rm(f"{store}@20", recursive=True),
        lambda: fs.pipe_file(f"{store}@20/x", b""),
        lambda: fs.makedirs(f"{store}@30"),
    ):
        with pytest.raises(OSError, match="only reads"):
            change()


def test_a_flipped_bit_is_noticed(store: str, tmp_path: Path) -> None:
    for path in (tmp_path / "run@home" / "data").glob("*.safetensors"):
        damaged = bytearray(path.read_bytes())
        damaged[-1] ^= 1
        path.write_bytes(damaged)
    with pytest.raises(OSError, match="checksum"):
        CheckpointFileSystem().cat_file(f"{store}@20/state.safetensors")


def test_the_loaders_state(tmp_path: Path, texts: Path) -> None:
    with headrace.open(texts).loader(batch_size=8, seed=3) as loader:
        with Checkpointer(tmp_path / "ckpt") as checkpointer:
            checkpointer.save(5, {"n": 1}, wait="local", loader=loader)
        fs = CheckpointFileSystem()
        found = json.loads(fs.cat_file(f"{tmp_path}/ckpt@5/loader.json"))
        assert found == loader.state_dict()
