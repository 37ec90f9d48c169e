"""Checkpoints to and from safetensors, torch.save and DCP; the program's diff, import and advise."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

import headrace
from headrace.checkpoint import (
    Checkpointer,
    export_dcp,
    export_torch,
    import_dcp,
    import_torch,
    torch_formats,
)


def call(*arguments: object, code: int = 0) -> str:
    """Run the program as users do; returns what it printed, or its error."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "ckpt", *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def tricky_state() -> dict[str, Any]:
    """Types, strides, aliases and shapes that formats get wrong."""
    weights = torch.randn(40, 30)
    return {
        "model": {
            "w": weights,
            "tied": weights,
            "part": weights[5:9],
            "turned": torch.randn(20, 10).t(),
            "half": torch.randn(33).bfloat16(),
            "small": torch.randn(16).to(torch.float8_e4m3fn),
            "complex": torch.randn(5, dtype=torch.complex128),
            "none": torch.empty(0, 7),
            "one": torch.tensor(3.5),
            "flags": torch.tensor([True, False, True]),
        },
        "optimizer": {"state": {0: {"m": torch.randn(100)}}, "groups": [{"lr": 0.1, "ids": [0]}]},
        "step": 12,
        "name": "run",
    }


def check_same(found: Any, expected: Any, path: str = "") -> None:
    """All tensors and values are equal; containers are of the same kind."""
    if isinstance(expected, dict):
        assert {str(key) for key in found} == {str(key) for key in expected}, path
        by_text = {str(key): value for key, value in found.items()}
        for key, value in expected.items():
            check_same(by_text[str(key)], value, f"{path}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for i, value in enumerate(expected):
            check_same(found[i], value, f"{path}/{i}")
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype, path
        assert found.shape == expected.shape, path
        a = found.detach().contiguous().reshape(-1).view(torch.uint8)
        b = expected.detach().contiguous().reshape(-1).view(torch.uint8)
        assert torch.equal(a, b), path
    else:
        assert found == expected, path


def save(folder: Path, *states: Any) -> Path:
    """A store with one checkpoint of each state: steps 0, 1, ..."""
    with Checkpointer(folder, keep=0) as checkpointer:
        for step, state in enumerate(states):
            checkpointer.save(step, state, wait="local")
    return folder


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pieces and parts even for these small states."""
    monkeypatch.setattr(torch_formats, "_PIECE_BYTES", 500)
    monkeypatch.setattr(torch_formats, "_PART_BYTES", 3000)


# ---- torch.save ----


@pytest.mark.parametrize("mmap", [False, True])
def test_torch_load_reads_what_was_exported(tmp_path: Path, mmap: bool) -> None:
    state = tricky_state()
    store = save(tmp_path / "c", state)
    report = export_torch(store, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt", weights_only=True, mmap=mmap)
    check_same(loaded, state)
    # Shared memory is stored once and shared again.
    model = loaded["model"]
    assert model["tied"].data_ptr() == model["w"].data_ptr()
    assert model["part"].data_ptr() == model["w"].data_ptr() + 5 * 30 * 4
    assert report["step"] == 0
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        assert archive.testzip() is None
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_exports_a_part_and_an_older_step(tmp_path: Path) -> None:
    store = save(tmp_path / "c", {"model": {"w": torch.ones(3)}}, {"model": {"w": torch.zeros(3)}})
    export_torch(store, tmp_path / "x.pt", step=0, below="/model")
    check_same(torch.load(tmp_path / "x.pt"), {"w": torch.ones(3)})
    with pytest.raises(headrace.InvalidArgumentError, match="/optimizer"):
        export_torch(store, tmp_path / "y.pt", below="/optimizer")
    with pytest.raises(headrace.NotFoundError):
        export_torch(store, tmp_path / "y.pt", step=7)
    assert not (tmp_path / "y.pt").exists()


def test_numpy_arrays_become_tensors_and_bytes_stay(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.int16).reshape(3, 4)
    store = save(tmp_path / "c", {"a": array, "b": b"some bytes", "empty": b""})
    export_torch(store, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt", weights_only=False)
    assert torch.equal(loaded["a"], torch.from_numpy(array))
    assert loaded["b"] == b"some bytes"
    assert loaded["empty"] == b""


def test_a_damaged_checkpoint_is_not_exported(tmp_path: Path) -> None:
    store = save(tmp_path / "c", {"w": torch.randn(10_000)})
    (data,) = (store / "data").glob("*.safetensors")
    content = bytearray(data.read_bytes())
    content[-5] ^= 1
    data.write_bytes(content)
    with pytest.raises(headrace.DataLossError, match=data.name):
        export_torch(store, tmp_path / "x.pt")
    with pytest.raises(headrace.DataLossError, match=data.name):
        export_dcp(store, tmp_path / "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


@pytest.mark.parametrize("zipped", [True, False])
def test_imports_what_torch_saved(tmp_path: Path, zipped: bool) -> None:
    state = tricky_state()
    if not zipped:
        del state["model"]["small"]  # PyTorch itself cannot read it back from its older format
    torch.save(state, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    report = import_torch(tmp_path / "x.pt", tmp_path / "c", step=5)
    assert report["step"] == 5
    checkpointer = Checkpointer(tmp_path / "c")
    restored = checkpointer.restore()
    check_same(restored, state)
    assert restored["model"]["tied"].data_ptr() == restored["model"]["w"].data_ptr()
    assert list(restored["optimizer"]["state"]) == [0]
    # Again: all of it is there.
    again = import_torch(tmp_path / "x.pt", tmp_path / "c", step=5)
    assert again["attempt"] == 1  # of another epoch
    assert again["reused_bytes"] == again["bytes"]


def test_executes_nothing_of_a_file(tmp_path: Path) -> None:
    torch.save({"x": Path("/")}, tmp_path / "x.pt")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        import_torch(tmp_path / "x.pt", tmp_path / "c")
    assert not (tmp_path / "c").exists()


# ---- DCP ----


def test_dcp_loads_what_was_exported(tmp_path: Path) -> None:
    state = tricky_state()
    store = save(tmp_path / "c", state)
    export_dcp(store, tmp_path / "out" / "x")
    into = tricky_state()
    dcp.load(into, checkpoint_id=tmp_path / "out" / "x")
    check_same(into, state)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["x"]
    with pytest.raises(headrace.InvalidArgumentError, match="already"):
        export_dcp(store, tmp_path / "out" / "x")


def test_imports_what_dcp_saved(tmp_path: Path) -> None:
    state = tricky_state()
    dcp.save(state, checkpoint_id=tmp_path / "x")
    report = import_dcp(tmp_path / "x", tmp_path / "c", step=3)
    assert report["step"] == 3
    check_same(Checkpointer(tmp_path / "c").restore(), state)


# ---- the program ----


def test_program_exports_and_imports_both(tmp_path: Path) -> None:
    state = {"model": {"w": torch.randn(50)}, "step": 3}
    store = save(tmp_path / "c", state)
    for kind in ("torch", "dcp"):
        out, again = tmp_path / f"{kind}-out", tmp_path / f"{kind}-again"
        printed = json.loads(call("export", store, out, "--to", kind, "--json"))
        assert printed["step"] == 0
        assert printed["bytes"] == 200
        call("import", again, out, f"--from={kind}", "--step", 9)
        checkpointer = Checkpointer(again)
        assert checkpointer.latest() == 9
        check_same(checkpointer.restore(), state)
    assert "not there" in call("export", tmp_path / "no", "x", code=1)


def test_program_imports_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensors = {f"layer.{i}": torch.randn(30, 20).bfloat16() for i in range(4)}
    tensors["scale"] = torch.tensor(2.0)
    save_file(tensors, tmp_path / "model.safetensors")
    out = call("import", tmp_path / "c", tmp_path / "model.safetensors", "--step", 7)
    assert "5 tensors" in out
    check_same(Checkpointer(tmp_path / "c").restore(7), {"model": tensors})
    # And back.
    call("export", tmp_path / "c", tmp_path / "out.safetensors")
    from safetensors.torch import load_file

    check_same(load_file(tmp_path / "out.safetensors"), tensors)
    # Several files with an index.
    names = sorted(tensors)
    folder = tmp_path / "sharded"
    folder.mkdir()
    for number, part in enumerate((names[:2], names[2:])):
        save_file({name: tensors[name] for name in part}, folder / f"{number}.safetensors")
    index = {"weight_map": {name: f"{int(i >= 2)}.safetensors" for i, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    call("import", tmp_path / "d", folder, "--below", "")
    check_same(Checkpointer(tmp_path / "d").restore(), tensors)


def test_program_compares(tmp_path: Path) -> None:
    weights = torch.ones(1000, dtype=torch.bfloat16)
    first = {"model": {"w": weights, "same": torch.ones(5)}, "old": torch.ones(2)}
    changed = weights.clone()
    changed[7], changed[900] = 3.0, 0.5
    second = {"model": {"w": changed, "same": torch.ones(5)}, "new": torch.ones(2)}
    store = save(tmp_path / "c", first, second)
    diff = json.loads(call("diff", store, "--step", 0, "--json"))
    rows = {row["path"]: row for row in diff["tensors"]}
    assert set(rows) == {"/model/w", "/old", "/new"}
    assert rows["/model/w"]["changed"] == 2
    assert rows["/model/w"]["max_abs"] == 2
    assert rows["/model/w"]["relative"] == pytest.approx((4.25 / 1000) ** 0.5)
    assert rows["/old"]["kind"] == "only in a"
    assert diff["same"] == 1
    text = call("diff", store, "--step", 0)
    assert "2 of 1,000 elements" in text
    assert "3 tensors differ, 1 are the same" in text
    other = save(tmp_path / "d", first)
    assert "0 tensors differ" in call("diff", store, other, "--step", 0)


def test_program_advises(tmp_path: Path) -> None:
    store = save(tmp_path / "c", {"w": torch.ones(5)}, {"w": torch.zeros(5)})
    assert "goodput" in call("advise", store, "--mtbf", "6h", "--restart", "5m")
    advice = json.loads(call("advise", store, "--mtbf", "6h", "--step-time", "2s", "--json"))
    assert advice["saves"] == 2
    assert advice["advised_steps"] >= 1
    assert "--mtbf" in call("advise", store, code=2)
