"""Checkpoints from Python: every kind of value bit for bit, whole or not at all, checked when read."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from headrace.checkpoint.dtypes import torch_dtypes
from headrace.checkpoint.tree import flatten, unflatten
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from headrace.checkpoint import Checkpointer


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor in C order."""
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


def same(a: Any, b: Any) -> bool:
    """Whether two states are equal bit for bit, types included."""
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and bits(a) == bits(b)
        )
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return same((a.real, a.imag), (b.real, b.imag))
    return bool(a == b)


def random_tensor(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Random bits, also those that are no number."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).to(torch.bool)
    itemsize = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 256, (math.prod(shape) * itemsize,), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


# ---- what can be stored ----


def test_every_dtype_comes_back_bit_for_bit(tmp_path: Path) -> None:
    state = {name: random_tensor(dtype, 3, 5) for name, dtype in torch_dtypes().items()}
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, state, wait="local")
        assert same(checkpointer.restore(), state)


def test_any_strides(tmp_path: Path) -> None:
    base = random_tensor(torch.float32, 6, 8)
    state = {
        "transposed": base.clone().t(),
        "stepped": base.clone()[::2, 1::3],
        "expanded": torch.arange(4).reshape(4, 1).expand(4, 3),
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "flipped": np.arange(12).reshape(3, 4)[::-1, ::-1],
        "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "conjugated": torch.randn(3, dtype=torch.complex64).conj(),
        "grad": torch.nn.Parameter(torch.randn(3)),
    }
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, state, wait="local")
        restored = checkpointer.restore()
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            value = value.detach().resolve_conj().contiguous()
        assert same(
            restored[name], np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value
        )


def test_shapes_without_elements_and_without_dimensions(tmp_path: Path) -> None:
    state = {
        "scalar": torch.tensor(3.5),
        "empty": [torch.empty(0), torch.empty(3, 0, 2), torch.empty(0, dtype=torch.int8)],
        "numpy": np.array(7, dtype=np.int16),
        "nothing": np.empty((0, 4)),
    }
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, state, wait="local")
        assert same(checkpointer.restore(), state)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.complex_numbers()
    | st.text()
    | st.binary(max_size=40)
)
states = st.recursive(
    scalars,
    lambda children: (
        st.lists(children, max_size=4)
        | st.lists(children, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=8) | st.integers(), children, max_size=4).filter(
            lambda d: len({str(key) for key in d}) == len(d)
        )
    ),
    max_leaves=12,
)


@given(state=states)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_tree_survives_json(state: Any) -> None:
    flat = flatten(state)
    tree = json.loads(json.dumps(flat.tree))
    assert same(unflatten(tree, lambda number, kind: flat.arrays[number]), state)


def test_plain_values(tmp_path: Path) -> None:
    state = {
        "nan": struct.unpack("d", bytes.fromhex("010000000000f87f"))[0],
        "floats": (0.1, -0.0, float("inf"), float("-inf"), 5e-324),
        "large": 2**200,
        "numpy": [np.float32(0.1), np.int64(-5), np.bool_(True), np.complex64(1 + 2j)],
        "names": (torch.float16, torch.device("cpu"), torch.Size([2, 3])),
        7: {"bytes": b"\x00\xff", "text": "naïve 名前 \ud800"},
        "a/b~c": {"": [[], {}, ()]},
    }
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, state, wait="local")
        assert same(checkpointer.restore(), state)


def test_long_names_of_any_characters(tmp_path: Path) -> None:
    names = [
        "x" * 200,
        "é" * 100,
        'quote"\\',
        "new\nline",
        "tab\t\x01",
        "../../etc",
        "@0,1",
        "#2",
        "",
    ]
    state = {"model": {name: torch.full((2,), i) for i, name in enumerate(names)}}
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, state, wait="local")
        assert same(checkpointer.restore(), state)


class Custom:
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Custom(), "test_checkpoint.Custom"),
        ({1, 2}, "builtins.set"),
        ({(1, 2): 3}, "a key of builtins.tuple"),
        ({1: 2, "1": 3}, "the same text"),
        (torch.eye(3).to_sparse(), "torch.sparse_coo"),
        (torch.empty(2, device="meta"), "meta device"),
        (np.array(["text"]), "NumPy array of <U4"),
        (np.array([1], dtype=">i4"), "NumPy array of >i4"),
        (np.array([Custom()]), "NumPy array of object"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_path(
    tmp_path: Path, value: Any, words: str
) -> None:
    checkpointer = Checkpointer(tmp_path / "ckpt")
    with pytest.raises(headrace.InvalidArgumentError) as error:
        checkpointer.save(1, {"model": {"good": torch.ones(2), "bad": value}})
    assert words in str(error.value)
    assert checkpointer.list() == []


def test_a_state_inside_itself_is_refused(tmp_path: Path) -> None:
    state: dict[str, Any] = {}
    state["again"] = state
    with pytest.raises(headrace.InvalidArgumentError, match="inside itself"):
        Checkpointer(tmp_path / "ckpt").save(1, state)


def test_shared_memory_is_stored_once_and_shared_again(tmp_path: Path) -> None:
    weight = torch.randn(100, 10)
    state = {"embed": weight, "head": weight, "rows": weight[10:20], "column": weight[:, 3]}
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        report = checkpointer.save(1, state).wait()
        assert report["bytes"] == 4000
        restored = checkpointer.restore()
    assert same(restored["column"], weight[:, 3].contiguous())
    restored["embed"][12, 3] = 99
    assert restored["head"][12, 3] == restored["rows"][2, 3] == restored["column"][12] == 99


# ---- saving ----


def test_tensors_may_change_once_save_has_returned(tmp_path: Path) -> None:
    state = {"w": torch.zeros(1 << 20), "n": np.zeros(1000), "t": torch.zeros(100, 100).t()}
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        handles = []
        for step in range(1, 6):
            for value in state.values():
                value[...] = step
            handles.append(checkpointer.save(step, state))
            for value in state.values():
                value[...] = -1
        for step, handle in enumerate(handles, 1):
            assert handle.wait()["published"]
            assert handle.done("local")
            if step < 3:
                continue  # pruned
        for step in (3, 4, 5):
            restored = checkpointer.restore(step) if step in steps_of(checkpointer) else None
            if restored is not None:
                assert all(bool((value == step).all()) for value in restored.values())


def steps_of(checkpointer: Checkpointer) -> list[int]:
    return [entry["step"] for entry in checkpointer.list()]


def test_unchanged_tensors_are_not_written_again(tmp_path: Path) -> None:
    state = {"frozen": torch.randn(100_000), "trained": torch.randn(1000)}
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, state, wait="local")
        state["trained"] += 1
        report = checkpointer.save(2, state).wait()
        assert report["reused_bytes"] == 400_000
        assert report["written_bytes"] < 20_000
        assert same(checkpointer.restore(), state)


def test_whatever_changes_between_saves_is_saved(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "model": {"w": torch.randn(5, 7), "b": torch.nn.Parameter(torch.ones(3))},
        "step": 1,
        "flag": True,
        "list": [torch.zeros(2), "a"],
    }
    model = state["model"]

    def replace_data() -> None:
        model["b"].data = torch.full((3,), 4.0)

    changes = [
        lambda: model["w"].add_(1),
        lambda: state.update(step=2),
        lambda: state.update(flag=1),
        lambda: model.update(w=torch.randn(5, 7)),
        lambda: model.update(w=torch.randn(7, 5).t()),
        lambda: model.update(w=model["w"].contiguous()),
        lambda: model.update(w=model["w"].view(torch.int32)),
        lambda: model.update(w=model["w"].view(7, 5)),
        lambda: model.update(v=model["w"][1:3]),
        lambda: model.pop("v"),
        lambda: state["list"].append(torch.ones(1)),
        lambda: state.update(list=tuple(state["list"])),
        lambda: model.update(b=model.pop("b"), w=model.pop("w")),
        lambda: state.update(x=float("nan")),
        lambda: state.update(x="nan"),
        lambda: state.update(x=torch.ones(2, dtype=torch.complex64).imag),
        lambda: state.update(x=torch.ones(2, dtype=torch.complex64).conj().imag),
        lambda: state.update(x=np.ones(3)),
        lambda: state.update(x={}),
        replace_data,
    ]
    with Checkpointer(tmp_path / "ckpt", arena_bytes="1MiB") as checkpointer:
        for step, change in enumerate(changes):
            change()
            for turn in range(2):
                checkpointer.save(2 * step + turn, state, wait="local")
                restored = checkpointer.restore()
                assert same(restored, state), step
    assert list(restored["model"]) == ["b", "w"]


def test_a_state_that_stays_where_it_is_is_worked_out_once(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 4)
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        for step in range(3):
            state = {"model": module.state_dict(), "step": step}
            checkpointer.save(step, state, wait="local")
            with torch.no_grad():
                module.weight.add_(1)
            # New dicts and tensors, around the same memory.
            repeat = checkpointer._repeats["full"]
            assert repeat is not None
            assert repeat.fits({"model": module.state_dict(), "step": step + 1})
            assert not repeat.fits({"model": module.state_dict(), "stop": step + 1})
        assert checkpointer.restore()["step"] == 2


def test_a_step_saved_again_is_a_new_attempt(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        for value in (1, 2):
            checkpointer.save(7, {"w": torch.full((3,), value)}, wait="local")
        assert [entry["attempt"] for entry in checkpointer.list()] == [1, 2]
        assert checkpointer.restore(7)["w"].tolist() == [2, 2, 2]


def test_keeps_what_it_was_told_to(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "ckpt", keep=2, keep_every=4) as checkpointer:
        for step in range(1, 8):
            checkpointer.save(step, {"w": torch.full((1000,), step)}, wait="local")
        assert steps_of(checkpointer) == [4, 6, 7]
        for step in (4, 6, 7):
            assert checkpointer.restore(step)["w"][0] == step
        decided = checkpointer.prune(dry_run=True)
        assert [row["keep"] for row in decided] == [True, True, True]
    assert len(list((tmp_path / "ckpt" / "data").glob("*.safetensors"))) == 3


def test_nothing_grows_over_many_saves(tmp_path: Path) -> None:
    state = {"w": torch.randn(50_000)}

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with Checkpointer(tmp_path / "ckpt", keep=2) as checkpointer:
        counts = []
        for step in range(60):
            state["w"] += 1
            checkpointer.save(step, state, wait="local")
            counts.append((open_files(), sum(len(files) for _, _, files in os.walk(tmp_path))))
        assert counts[-1][0] == counts[10][0]
        # Old catalogs stay until the next run sweeps them.
        assert len(list((tmp_path / "ckpt" / "data").iterdir())) == 4
    with Checkpointer(tmp_path / "ckpt", keep=2) as checkpointer:
        checkpointer.save(99, state, wait="local")
        assert len(list((tmp_path / "ckpt" / "catalogs").iterdir())) < 10


def test_levels(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        with pytest.raises(headrace.InvalidArgumentError, match="reaches 'local' and not 'remote'"):
            checkpointer.save(1, {}, wait="remote")
        handle = checkpointer.save(1, {"w": torch.ones(3)})
        assert handle.done("memory")
        handle.wait("local", timeout=240)
        assert checkpointer.latest("local") == 1
    with Checkpointer(tmp_path / "other", level="remote") as checkpointer:
        checkpointer.save(1, {"w": torch.ones(3)}, wait="remote")
        assert checkpointer.latest("remote") == 1


def test_the_first_to_write_is_shut_out_by_the_second(tmp_path: Path) -> None:
    first = Checkpointer(tmp_path / "ckpt")
    first.save(1, {"w": torch.ones(3)}, wait="local")
    second = Checkpointer(tmp_path / "ckpt")
    second.save(2, {"w": torch.ones(3)}, wait="local")
    with pytest.raises(headrace.HeadraceError, match=str(os.getpid())):
        first.save(3, {"w": torch.ones(3)}, wait="local")
    assert steps_of(second) == [1, 2]


def test_a_full_disk_is_told_and_the_next_save_works(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import resource, signal, sys, torch, headrace
        from headrace.checkpoint import Checkpointer
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with Checkpointer(sys.argv[1], arena_bytes="64MiB") as c:
            c.save(1, {"w": torch.ones(1000)}, wait="local")
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            try:
                c.save(2, {"w": torch.ones(1 << 20)}, wait="local")
                raise SystemExit("it should fail")
            except headrace.HeadraceError as error:
                print(error)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            assert c.latest() == 1
            c.save(3, {"w": torch.ones(1 << 20)}, wait="local")
            assert c.latest() == 3
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "ckpt")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# ---- restoring ----


def test_restores_into_the_arrays_of_a_model(tmp_path: Path) -> None:
    def build() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(len(list(tmp_path.iterdir())))
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
        )
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.arange(12.0).reshape(3, 4)).sum().backward()
        optimizer.step()

    model, optimizer = build()
    train(model, optimizer)
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
        checkpointer.save(1, state, wait="local")
        other, other_optimizer = build()
        restored = checkpointer.restore(
            into={"model": other.state_dict(), "optimizer": {}, "step": 0}, allow=["/optimizer"]
        )
        other_optimizer.load_state_dict(restored["optimizer"])
        assert restored["step"] == 1
        assert restored["model"]["0.weight"].data_ptr() == other[0].weight.data_ptr()
    train(model, optimizer)
    train(other, other_optimizer)
    assert same(dict(other.state_dict()), dict(model.state_dict()))


def test_all_that_does_not_fit_is_listed_and_nothing_is_changed(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(
            1,
            {"a": torch.ones(3), "b": torch.ones(4), "c": torch.ones(5), "gone": torch.ones(1)},
            wait="local",
        )
        into = {
            "a": torch.zeros(3),
            "b": torch.zeros(2, 2),
            "c": torch.zeros(5, dtype=torch.float64),
            "new": torch.zeros(1),
        }
        with pytest.raises(headrace.InvalidArgumentError) as error:
            checkpointer.restore(into=into)
        for words in (
            "/b has shape (2, 2)",
            "/c has type float64",
            "/new is not in",
            "/gone is in",
        ):
            assert words in str(error.value)
        assert not into["a"].any()
        restored = checkpointer.restore(into=into, allow=["/b", "/c", "/new", "/gone"])
        assert restored["a"] is into["a"]
        assert into["a"].tolist() == [1, 1, 1]


def test_into_strided_and_numpy_arrays(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        saved = {"t": torch.arange(6).reshape(2, 3), "n": np.arange(6.0).reshape(2, 3)}
        checkpointer.save(1, saved, wait="local")
        into = {"t": torch.zeros(3, 2, dtype=torch.int64).t(), "n": np.zeros((3, 2)).T}
        checkpointer.restore(into=into)
        assert into["t"].tolist() == saved["t"].tolist()
        assert into["n"].tolist() == saved["n"].tolist()
        frozen = np.zeros((2, 3))
        frozen.flags.writeable = False
        with pytest.raises(headrace.InvalidArgumentError, match="cannot be written"):
            checkpointer.restore(into={"t": into["t"], "n": frozen})


def test_a_flipped_bit_anywhere_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, {"w": torch.randn(3000), "n": 5}, wait="local")
        rng = np.random.default_rng(1)
        for path in sorted((tmp_path / "ckpt").rglob("*")):
            if not path.is_file() or path.stat().st_size == 0 or path.suffix == ".lock":
                continue
            original = path.read_bytes()
            for offset in rng.integers(0, len(original), 12):
                damaged = bytearray(original)
                damaged[offset] ^= 1 << rng.integers(8)
                path.write_bytes(damaged)
                try:
                    restored = checkpointer.restore()
                except headrace.HeadraceError:
                    continue
                # What no tensor lies in may differ: the header of a data file.
                assert path.suffix == ".safetensors" and offset < 4096, path
                assert restored["n"] == 5
            path.write_bytes(original)
        assert checkpointer.restore()["n"] == 5


def test_files_that_are_gone_or_of_another_step(tmp_path: Path) -> None:
    def exchange(one: Path, other: Path) -> None:
        one.rename(tmp_path / "aside")
        other.rename(one)
        (tmp_path / "aside").rename(other)

    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, {"w": torch.full((40_000,), step)}, wait="local")
        files = sorted((tmp_path / "ckpt" / "data").glob("*.safetensors"))
        assert files[0].stat().st_size == files[1].stat().st_size
        exchange(*files)
        for step in (1, 2):
            with pytest.raises(headrace.DataLossError, match="safetensors"):
                checkpointer.restore(step)
        exchange(*(path.with_suffix(".crc") for path in files))  # each with its own checksums
        for step in (1, 2):
            with pytest.raises(headrace.DataLossError, match="data/"):
                checkpointer.restore(step)
        files[0].unlink()
        files[1].with_suffix(".crc").unlink()
        for step in (1, 2):
            with pytest.raises(headrace.HeadraceError, match="data/"):
                checkpointer.restore(step)


def test_a_place_that_cannot_be_written_to_is_named() -> None:
    with pytest.raises(headrace.HeadraceError, match="/sys/headrace"):
        Checkpointer("/sys/headrace").save(1, {}, wait="local")


def test_no_checkpoint_is_not_found(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path / "ckpt")
    assert checkpointer.latest() is None
    with pytest.raises(headrace.NotFoundError, match="holds no checkpoint"):
        checkpointer.restore()
    checkpointer.save(1, {}, wait="local")
    with pytest.raises(headrace.NotFoundError, match="of step 2"):
        checkpointer.restore(2)


def test_a_model_saved_by_one_rank_opens_in_safetensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model = torch.nn.Linear(3, 4)
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(
            1, {"model": model.state_dict(), "optimizer": {"m": torch.ones(2)}}, wait="local"
        )
    files = [
        safetensors.load_file(path) for path in (tmp_path / "ckpt" / "data").glob("*.safetensors")
    ]
    (found,) = [tensors for tensors in files if "weight" in tensors]
    assert same(found["weight"], model.weight.data)
    assert same(found["bias"], model.bias.data)


# ---- runs ----


def test_the_loader_goes_on_where_the_checkpoint_was_made(tmp_path: Path, texts: Path) -> None:
    def loader() -> headrace.Loader:
        return headrace.open(texts).loader(global_batch_size=8, seed=3)

    with loader() as whole:
        expected = [batch["__key__"] for batch in whole]
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        with loader() as first:
            keys = []
            for batch in first:
                keys.append(batch["__key__"])
                if len(keys) == 3:
                    checkpointer.save(3, {"step": 3}, wait="local", loader=first)
                    reading = checkpointer._store.read(3)
                    assert reading.dataset_version == first.state_dict()["dataset_version"]
                    break
        with loader() as second:
            assert checkpointer.restore(loader=second) == {"step": 3}
            keys += [batch["__key__"] for batch in second]
    assert keys == expected


TRAINER = textwrap.dedent(
    """
    import sys, torch
    from headrace.checkpoint import Checkpointer
    state = {"w": torch.zeros(2_000_000), "step": 0}
    with Checkpointer(sys.argv[1], keep=2) as c:
        if c.latest() is not None:
            state = c.restore(into=state)
            assert bool((state["w"] == state["step"]).all()), "torn"
        print("start", state["step"], flush=True)
        while True:
            state["step"] += 1
            state["w"] += 1
            c.save(state["step"], state)
            state["w"] += 1
            state["w"] -= 1
            if state["step"] % 2 == 0:
                c.wait()
                print("safe", state["step"], flush=True)
    """
)


def test_killed_at_any_time_the_newest_whole_one_is_found(tmp_path: Path) -> None:
    safe = 0
    for kill in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(tmp_path / "ckpt")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        started = int(process.stdout.readline().split()[1])
        assert started >= safe
        for _ in range(2):
            safe = int(process.stdout.readline().split()[1])
        time.sleep(0.013 * kill)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert "torn" not in errors
    assert safe > 10


SHARDED = textwrap.dedent(
    """
    import os, sys, torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from headrace.checkpoint import Checkpointer

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    def state(fill):
        def make(n, *shape, placement):
            whole = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + n
            return distribute_tensor(whole if fill else torch.zeros_like(whole), mesh, [placement])
        return {
            "rows": make(1, 10, 6, placement=Shard(0)),
            "columns": make(2, 4, 7, placement=Shard(1)),
            "uneven": make(3, 3, placement=Shard(0)),
            "same": make(4, 5, placement=Replicate()),
            "plain": torch.full((4,), 5.0 if fill else 0.0),
            "number": 6 if fill else 0,
        }
    with Checkpointer(sys.argv[2]) as checkpointer:
        if sys.argv[1] == "save":
            checkpointer.save(1, state(True), wait="local")
        else:
            found, expected = checkpointer.restore(into=state(False)), state(True)
            for name, value in expected.items():
                got = found[name]
                if hasattr(value, "to_local"):
                    assert torch.equal(got.to_local(), value.to_local()), name
                else:
                    assert (got == value).all() if hasattr(got, "all") else got == value, name
    dist.barrier()
    # PyTorch's threads may abort a process that is slow to tear itself down.
    sys.stdout.flush()
    os._exit(0)
    """
)


@pytest.mark.parametrize(("saved", "restored"), [(2, 1), (1, 2), (2, 3)])
def test_any_number_of_ranks_to_any_other(
    tmp_path: Path, run_on_ranks: Callable[..., None], saved: int, restored: int
) -> None:
    program = tmp_path / "sharded.py"
    program.write_text(SHARDED)
    run_on_ranks(saved, program, "save", tmp_path / "ckpt")
    run_on_ranks(restored, program, "restore", tmp_path / "ckpt")


def test_twenty_thousand_small_tensors(tmp_path: Path) -> None:
    state = {f"t{i}": torch.full((3,), i) for i in range(20_000)}
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, state, wait="local")
        restored = checkpointer.restore()
        assert all(restored[f"t{i}"].tolist() == [i] * 3 for i in range(0, 20_000, 97))
