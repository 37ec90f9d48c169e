"""Arrays that share memory when they are saved and not when they are restored, and the other way round;
states that are restored by a specification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headrace
from headrace.checkpoint import Checkpointer


def restored(tmp_path: Path, saved: Any, **how: Any) -> Any:
    """What comes back of a state."""
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, saved, wait="local")
        return checkpointer.restore(**how)


def tied() -> dict[str, torch.Tensor]:
    weight = torch.randn(40, 6)
    return {"embed": weight, "head": weight, "rows": weight[10:20], "column": weight[:, 3]}


def test_what_shared_memory_fills_arrays_that_do_not(tmp_path: Path) -> None:
    saved = tied()
    into = {name: torch.zeros(tensor.shape) for name, tensor in saved.items()}
    found = restored(tmp_path, saved, into=into)
    for name, tensor in saved.items():
        assert found[name] is into[name]
        assert torch.equal(into[name], tensor), name


def test_the_order_in_which_they_are_named_does_not_matter(tmp_path: Path) -> None:
    saved, weight = tied(), torch.zeros(40, 6)
    into = {"column": weight[:, 3], "head": weight, "rows": weight[10:20], "embed": weight}
    restored(tmp_path, saved, into=into)
    assert torch.equal(weight, saved["embed"])


def test_equal_arrays_fill_shared_memory(tmp_path: Path) -> None:
    saved = {"embed": torch.randn(5, 3)}
    saved["head"] = saved["embed"].clone()
    weight = torch.zeros(5, 3)
    restored(tmp_path, saved, into={"embed": weight, "head": weight})
    assert torch.equal(weight, saved["head"])


def test_different_arrays_do_not_fit_shared_memory(tmp_path: Path) -> None:
    saved = {"embed": torch.randn(5, 3), "head": torch.randn(5, 3)}
    weight = torch.zeros(5, 3)
    with pytest.raises(headrace.InvalidArgumentError, match="/head shares memory with /embed"):
        restored(tmp_path, saved, into={"embed": weight, "head": weight})


def test_a_view_of_another_place_is_no_other_view(tmp_path: Path) -> None:
    saved, weight = tied(), torch.zeros(40, 6)
    other, another = torch.zeros(40, 6), torch.zeros(40, 6)
    into = {"embed": weight, "head": weight, "rows": other[20:30], "column": another[:, 1]}
    restored(tmp_path, saved, into=into)
    for name, tensor in saved.items():
        assert torch.equal(into[name], tensor), name
    for unfit in (torch.zeros(10, 5), torch.zeros(10, 6).double()):
        with pytest.raises(headrace.InvalidArgumentError, match="/rows has"):
            restored(tmp_path, saved, into={**into, "rows": unfit})


def test_numpy_arrays_too(tmp_path: Path) -> None:
    base = np.arange(12.0).reshape(3, 4)
    into = {"all": np.zeros((3, 4)), "row": np.zeros(4)}
    restored(tmp_path, {"all": base, "row": base[1]}, into=into)
    assert into["row"].tolist() == base[1].tolist()
    into["row"].flags.writeable = False
    with pytest.raises(headrace.InvalidArgumentError, match="cannot be written"):
        restored(tmp_path, {"all": base, "row": base[1]}, into=into)


def test_conjugate_views_are_filled(tmp_path: Path) -> None:
    saved = {"c": torch.randn(4, dtype=torch.complex64), "i": torch.randn(4)}
    memory = torch.zeros(4, dtype=torch.complex64)
    into = {"c": memory.conj(), "i": torch.zeros(4, dtype=torch.complex64).conj().imag}
    restored(tmp_path, saved, into=into)
    assert torch.equal(memory, saved["c"].conj().resolve_conj())
    assert torch.equal(into["i"], saved["i"])


def test_what_overlaps_in_part_is_named(tmp_path: Path) -> None:
    memory = torch.zeros(10)
    state = {"model": {"a": memory[:6], "b": memory[4:]}}
    with pytest.raises(headrace.InvalidArgumentError, match="/model/a and /model/b overlap"):
        Checkpointer(tmp_path / "ckpt").save(1, state)


# ---- by a specification ----


def test_restores_like_a_specification(tmp_path: Path) -> None:
    saved = {"model": {"w": torch.randn(3, 4), "b": torch.randn(2).bfloat16()}, "n": np.arange(3)}
    spec = {
        "model": {
            "w": torch.empty(3, 4, device="meta"),
            "b": torch.empty(2, dtype=torch.bfloat16, device="meta"),
        },
        "n": np.zeros(3, dtype=np.int64),
    }
    found = restored(tmp_path, {**saved, "step": 5}, like={**spec, "step": None})
    assert found["model"]["w"].device.type == "cpu"
    assert torch.equal(found["model"]["w"], saved["model"]["w"])
    assert torch.equal(found["model"]["b"], saved["model"]["b"])
    assert found["n"].tolist() == [0, 1, 2] and found["step"] == 5
    assert spec["n"].tolist() == [0, 0, 0]


def test_what_is_allowed_not_to_fit_comes_as_zeros(tmp_path: Path) -> None:
    saved = {"w": torch.randn(4), "head": torch.randn(1000, 3), "n": np.arange(1, 4)}
    spec = {"w": torch.empty(4), "head": torch.empty(10, 3), "n": np.arange(5)}
    with Checkpointer(tmp_path / "c") as checkpointer:
        checkpointer.save(1, saved, wait="local")
        found = checkpointer.restore(like=spec, allow=["/head", "/n"])
    assert torch.equal(found["w"], saved["w"])
    assert torch.equal(found["head"], torch.zeros(10, 3))
    assert found["n"].tolist() == [0] * 5


def test_like_a_module_that_has_no_memory_yet(tmp_path: Path) -> None:
    def build() -> torch.nn.Module:
        module = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False))
        module[1].weight = module[0].weight
        return module

    module = build()
    with torch.device("meta"):
        spec = build().state_dict()
    found = restored(tmp_path, dict(module.state_dict()), like=dict(spec))
    assert torch.equal(found["1.weight"], module[0].weight)
    assert found["0.weight"].data_ptr() == found["1.weight"].data_ptr()


def test_a_specification_that_does_not_fit(tmp_path: Path) -> None:
    spec = {"w": torch.empty(3, 5, device="meta")}
    with pytest.raises(headrace.InvalidArgumentError, match=r"/w has shape \(3, 5\)"):
        restored(tmp_path, {"w": torch.zeros(3, 4)}, like=spec)
    with pytest.raises(headrace.InvalidArgumentError, match="not both"):
        restored(tmp_path, {"w": torch.zeros(3, 4)}, like=spec, into=spec)


def test_reports_what_is_damaged(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, {"model": {"w": torch.randn(30_000)}}, wait="local")
        checkpointer.save(2, {"model": {"w": torch.randn(30_000)}}, wait="local")
        sound = checkpointer.verify()
        assert (sound["step"], sound["files"], sound["faults"]) == (2, 1, [])
        assert sound["bytes"] > 120_000
        for path in (tmp_path / "ckpt" / "data").glob("*.safetensors"):
            data = bytearray(path.read_bytes())
            data[60_000] ^= 4
            path.write_bytes(data)
        (fault,) = checkpointer.verify(1)["faults"]
        assert fault["place"] == "local"
        assert fault["tensors"] == ["/model/w"]
        assert fault["file"].startswith("data/")
        assert "65536 bytes at offset 0 of" in fault["error"]
        with pytest.raises(headrace.NotFoundError):
            checkpointer.verify(3)
