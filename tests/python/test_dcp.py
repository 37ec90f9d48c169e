"""PyTorch's distributed checkpointing through a Headrace store."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from headrace.checkpoint.dcp import HeadraceReader, HeadraceStager, HeadraceWriter
from headrace.checkpoint.dcp.layout import step_of
from headrace.checkpoint.dtypes import torch_dtypes
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import headrace
from headrace.checkpoint import Checkpointer

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is.*:UserWarning")


def make(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A small model and its optimizer after one step."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer)
    return model, optimizer


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.arange(12.0).reshape(3, 4)).square().sum().backward()
    optimizer.step()


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def test_a_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    model, optimizer = make(1)
    writer = HeadraceWriter(tmp_path / "ckpt")
    dcp.save(
        {**state_of(model, optimizer), "step": 7, "names": ["a", {"b": 1.5}]},
        checkpoint_id="step-7",
        storage_writer=writer,
    )
    assert writer.report["published"]
    other, other_optimizer = make(2)
    state = {**state_of(other, other_optimizer), "step": 0, "names": ["", {"b": 0.0}]}
    dcp.load(state, storage_reader=HeadraceReader(tmp_path / "ckpt"))
    assert state["step"] == 7 and state["names"] == ["a", {"b": 1.5}]
    set_state_dict(
        other,
        other_optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    for _ in range(3):
        train(model, optimizer)
        train(other, other_optimizer)
    assert equal(state_of(other, other_optimizer), state_of(model, optimizer))


def test_every_dtype_and_stride_and_size(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        name: torch.randint(0, 2, (3, 4 * torch.empty(0, dtype=dtype).element_size()))
        .to(torch.uint8)
        .view(dtype)
        for name, dtype in torch_dtypes().items()
    }
    state |= {
        "transposed": torch.randn(3, 5).t(),
        "stepped": torch.randn(10)[::3],
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(3, 0),
        "conjugated": torch.randn(3, dtype=torch.complex64).conj(),
    }
    dcp.save(state, checkpoint_id="1", storage_writer=HeadraceWriter(tmp_path / "ckpt"))
    into = {key: torch.zeros_like(value) for key, value in state.items()}
    into["transposed"] = torch.zeros(5, 3)
    dcp.load(into, storage_reader=HeadraceReader(tmp_path / "ckpt"))
    for key, value in state.items():
        a, b = (one.resolve_conj().contiguous().view(-1) for one in (into[key], value))
        assert a.dtype == b.dtype and bytes(a.view(torch.uint8)) == bytes(b.view(torch.uint8)), key


def test_types_of_the_model_win_as_in_other_readers(tmp_path: Path) -> None:
    dcp.save(
        {"w": torch.arange(5, dtype=torch.bfloat16)},
        checkpoint_id="1",
        storage_writer=HeadraceWriter(tmp_path / "ckpt"),
    )
    into = {"w": torch.zeros(5)}
    dcp.load(into, storage_reader=HeadraceReader(tmp_path / "ckpt"))
    assert into["w"].tolist() == [0, 1, 2, 3, 4]


def test_async_save_copies_before_it_returns(tmp_path: Path) -> None:
    state = {"w": torch.zeros(1 << 18), "t": torch.zeros(64, 32).t(), "step": 0, "list": [0]}
    writer = HeadraceWriter(tmp_path / "ckpt", keep=0)
    for step in range(1, 5):
        for key in "w", "t":
            state[key].fill_(step)
        state["step"] = state["list"][0] = step
        stager = HeadraceStager(writer) if step % 2 else None
        future = dcp.async_save(
            state, checkpoint_id=f"run/step_{step}", storage_writer=writer, async_stager=stager
        )
        for key in "w", "t":
            state[key].fill_(-1)
        state["list"][0] = -1
        getattr(future, "upload_completion", future).result()
    for step in range(1, 5):
        into = {"w": torch.empty(1 << 18), "t": torch.empty(32, 64), "step": 0, "list": [0]}
        dcp.load(into, checkpoint_id=step, storage_reader=HeadraceReader(tmp_path / "ckpt"))
        assert bool((into["w"] == step).all()) and bool((into["t"] == step).all())
        assert into["step"] == step and into["list"] == [step]


def test_what_is_staged_is_not_copied_again(tmp_path: Path) -> None:
    writer = HeadraceWriter(tmp_path / "ckpt")
    state = {"w": torch.arange(1000.0), "unused": torch.ones(10), "n": 3}
    staged = writer.stage(state)
    lies = staged["w"].data_ptr()
    assert lies != state["w"].data_ptr() and equal(staged, state)
    # As on a rank that leaves some of the tensors to others: what stays is moved together.
    del staged["unused"]
    reordered = {"n": 3, "w": staged["w"]}
    dcp.save(reordered, checkpoint_id="1", storage_writer=writer)
    into = {"w": torch.empty(1000), "n": 0}
    dcp.load(into, storage_reader=HeadraceReader(tmp_path / "ckpt"))
    assert equal(into, {"w": state["w"], "n": 3})


class Halves(DefaultSavePlanner):
    """A planner that gives other tensors than those of the state."""

    def transform_object(self, write_item: Any, object: Any) -> Any:
        made = super().transform_object(write_item, object)
        return made.t().contiguous().t() if isinstance(made, torch.Tensor) and made.dim() else made


class Doubles(DefaultLoadPlanner):
    """A planner that counts what it commits."""

    committed = 0

    def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
        tensor.mul_(2)
        self.committed += 1


@pytest.mark.parametrize("staged", [False, True])
def test_planners_of_users(tmp_path: Path, staged: bool) -> None:
    writer = HeadraceWriter(tmp_path / "ckpt")
    state = {"w": torch.arange(6.0).reshape(2, 3), "v": torch.arange(3.0)}
    for step in (1, 2):
        given = writer.stage(state) if staged else state
        dcp.save(given, checkpoint_id=f"{step}", storage_writer=writer, planner=Halves())
    into = {"w": torch.zeros(2, 3), "v": torch.zeros(3)}
    planner = Doubles()
    dcp.load(into, storage_reader=HeadraceReader(tmp_path / "ckpt"), planner=planner)
    assert equal(into, {key: value * 2 for key, value in state.items()})
    assert planner.committed == 2


def test_plan_caching(tmp_path: Path) -> None:
    writer = HeadraceWriter(tmp_path / "ckpt")
    try:
        planner = lambda: DefaultSavePlanner(enable_plan_caching=True)  # noqa: E731
        planner()
    except TypeError:
        pytest.skip("this PyTorch has no plan caching")
    for step in (3, 4, 5):
        state = {"w": torch.full((100,), float(step)), "step": step}
        dcp.save(state, checkpoint_id=f"{step}", storage_writer=writer, planner=planner())
    into = {"w": torch.zeros(100), "step": 0}
    dcp.load(into, checkpoint_id="4", storage_reader=HeadraceReader(tmp_path / "ckpt"))
    assert into["step"] == 4 and into["w"][0] == 4


def test_a_step_is_never_overwritten_and_ids_name_steps(tmp_path: Path) -> None:
    writer = HeadraceWriter(tmp_path / "ckpt")
    for value in (1, 2):
        dcp.save({"n": value}, checkpoint_id="a9/step-40", storage_writer=writer)
    dcp.save({"n": 3}, storage_writer=writer)
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        found = [(entry["step"], entry["attempt"]) for entry in checkpointer.list()]
        assert found == [(40, 1), (40, 2), (41, 1)]
        assert checkpointer.restore(40) == {"n": 2}
    with pytest.raises(headrace.InvalidArgumentError, match="names no step"):
        dcp.save({"n": 3}, checkpoint_id="/runs/7/last", storage_writer=writer)
    assert step_of("s3://bucket/epoch=3-step=1200.ckpt/") == 1200


def test_keeps_what_it_was_told_to(tmp_path: Path) -> None:
    writer = HeadraceWriter(tmp_path / "ckpt", keep=2)
    for step in range(1, 6):
        dcp.save({"w": torch.full((9,), step)}, checkpoint_id=f"{step}", storage_writer=writer)
    assert [entry["step"] for entry in Checkpointer(tmp_path / "ckpt").list()] == [4, 5]


def test_a_failed_save_leaves_the_one_before_and_the_next_works(tmp_path: Path) -> None:
    writer = HeadraceWriter(tmp_path / "ckpt")
    dcp.save({"w": torch.ones(3)}, checkpoint_id="1", storage_writer=writer)
    with pytest.raises(CheckpointException, match=r"/w \(a tensor of layout torch.sparse_coo"):
        dcp.save({"w": torch.eye(3).to_sparse()}, checkpoint_id="2", storage_writer=writer)
    assert Checkpointer(tmp_path / "ckpt").latest() == 1
    dcp.save({"w": torch.ones(3)}, checkpoint_id="2", storage_writer=writer)
    assert Checkpointer(tmp_path / "ckpt").latest() == 2


def test_a_state_that_grows(tmp_path: Path) -> None:
    writer = HeadraceWriter(tmp_path / "ckpt")
    for step, size in ((1, 10), (2, 3_000_000)):
        dcp.save({"w": torch.ones(size)}, checkpoint_id=f"{step}", storage_writer=writer)
    into = {"w": torch.zeros(3_000_000)}
    dcp.load(into, storage_reader=HeadraceReader(tmp_path / "ckpt"))
    assert bool(into["w"].all())


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    dcp.save(
        {"w": torch.randn(3000)},
        checkpoint_id="1",
        storage_writer=HeadraceWriter(tmp_path / "ckpt"),
    )
    (path,) = (tmp_path / "ckpt" / "data").glob("*.safetensors")
    damaged = bytearray(path.read_bytes())
    damaged[-5] ^= 8
    path.write_bytes(damaged)
    with pytest.raises(CheckpointException, match=path.name):
        dcp.load({"w": torch.zeros(3000)}, storage_reader=HeadraceReader(tmp_path / "ckpt"))


def test_both_ways_between_dcp_and_the_checkpointer(tmp_path: Path) -> None:
    shared = torch.arange(12.0).reshape(3, 4)
    state = {
        "model": {"w": shared, "tied": shared, "row": shared[1], "n": torch.arange(3).numpy()},
        "list": [torch.ones(2), 5, "text"],
        "blob": b"\x00\x01",
        "nothing": {},
    }
    with Checkpointer(tmp_path / "a") as checkpointer:
        checkpointer.save(1, state, wait="local")
    into: dict[str, Any] = {
        "model": {
            "w": torch.zeros(3, 4),
            "tied": torch.zeros(3, 4),
            "row": torch.zeros(4),
            "n": torch.zeros(3, dtype=torch.int64),
        },
        "list": [torch.zeros(2), 0, ""],
        "blob": b"",
        "nothing": {},
    }
    dcp.load(into, storage_reader=HeadraceReader(tmp_path / "a"))
    state["model"]["n"] = torch.arange(3)  # type: ignore[index]
    assert equal(into, state)

    dcp.save(into, checkpoint_id="2", storage_writer=HeadraceWriter(tmp_path / "b"))
    with Checkpointer(tmp_path / "b") as checkpointer:
        restored = checkpointer.restore()
        assert isinstance(restored.pop("blob"), bytes)  # as torch.save wrote it
        del into["blob"], into["nothing"]  # PyTorch leaves out what is empty
        assert equal(restored, into)
        checkpointer.restore(into={"model": into["model"]}, allow=["/list", "/blob"])


def test_a_model_opens_in_safetensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model, optimizer = make(3)
    dcp.save(
        state_of(model, optimizer),
        checkpoint_id="1",
        storage_writer=HeadraceWriter(tmp_path / "ckpt"),
    )
    files = [
        safetensors.load_file(path) for path in (tmp_path / "ckpt" / "data").glob("*.safetensors")
    ]
    (found,) = [tensors for tensors in files if "0.weight" in tensors]
    assert equal(found, dict(model.state_dict()))


def test_pytorchs_own_tools_read_it(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    state = {"model": {"w": torch.arange(3.0), "deep": [torch.ones(2), {"x": 1}]}, "step": 4}
    dcp.save(state, checkpoint_id="1", storage_writer=HeadraceWriter(tmp_path / "ckpt"))
    found: dict[str, Any] = {}
    _load_state_dict(
        found,
        storage_reader=HeadraceReader(tmp_path / "ckpt"),
        planner=_EmptyStateDictLoadPlanner(),
        no_dist=True,
    )
    assert equal(found, state)


def test_the_loader_is_part_of_the_state(tmp_path: Path, texts: Path) -> None:
    def loader() -> headrace.Loader:
        return headrace.open(texts).loader(global_batch_size=8, seed=3)

    with loader() as whole:
        expected = [batch["__key__"] for batch in whole]
    with loader() as first:
        keys = []
        for batch in first:
            keys.append(batch["__key__"])
            if len(keys) == 3:
                dcp.save(
                    {"loader": first},
                    checkpoint_id="3",
                    storage_writer=HeadraceWriter(tmp_path / "ckpt"),
                )
                break
    with loader() as second:
        dcp.load({"loader": second}, storage_reader=HeadraceReader(tmp_path / "ckpt"))
        keys += [batch["__key__"] for batch in second]
    assert keys == expected
    reading = headrace._native.CheckpointStore.open(str(tmp_path / "ckpt"), {}).read()
    assert reading.dataset_version == headrace.open(texts).version


def test_a_writer_can_be_sent_to_another_process(tmp_path: Path) -> None:
    writer = pickle.loads(pickle.dumps(HeadraceWriter(tmp_path / "ckpt", keep=1)))
    dcp.save({"n": 1}, checkpoint_id="1", storage_writer=writer)
    assert Checkpointer(tmp_path / "ckpt").restore() == {"n": 1}


def test_importing_headrace_imports_no_torch() -> None:
    program = "import sys, headrace, headrace.checkpoint; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


RANKS = textwrap.dedent(
    """
    import os, sys, torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from headrace.checkpoint.dcp import HeadraceReader, HeadraceWriter

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    def state(fill):
        def make(n, *shape, placement):
            whole = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + n
            return distribute_tensor(
                whole + fill if fill else torch.zeros_like(whole), mesh, [placement])
        return {
            "rows": make(1, 10, 6, placement=Shard(0)),
            "columns": make(2, 4, 7, placement=Shard(1)),
            "uneven": make(3, 3, placement=Shard(0)),
            "same": make(4, 5, placement=Replicate()),
            "plain": {"a": torch.full((4,), 5.0 * fill), "b": torch.full((70,), 7.0 * fill)},
            "number": fill,
        }
    def check(found, expected):
        for name, value in expected.items():
            got = found[name]
            if isinstance(value, dict):
                check(got, value)
            elif hasattr(value, "to_local"):
                assert torch.equal(got.to_local(), value.to_local()), name
            else:
                assert (got == value).all() if hasattr(got, "all") else got == value, name
    if sys.argv[1] == "save":
        writer = HeadraceWriter(sys.argv[2], keep=0)
        dcp.save(state(1), checkpoint_id="1", storage_writer=writer)
        for step in (2, 3):
            future = dcp.async_save(state(step), checkpoint_id=str(step), storage_writer=writer)
            getattr(future, "upload_completion", future).result()
        # The last rank fails; then all are told so, and the same step can be saved again.
        class Fails(DefaultSavePlanner):
            def resolve_data(self, write_item):
                if rank == world - 1:
                    raise RuntimeError("no such data")
                return super().resolve_data(write_item)
        for _ in range(2):
            try:
                dcp.save(state(4), checkpoint_id="4", storage_writer=writer, planner=Fails())
            except CheckpointException as error:
                assert "no such data" in str(error)
            else:
                raise SystemExit("it should fail")
        dcp.save(state(5), checkpoint_id="4", storage_writer=writer)
    else:
        for step, fill in ((1, 1), (2, 2), (3, 3), (4, 5)):
            found = state(0)
            dcp.load(found, checkpoint_id=str(step), storage_reader=HeadraceReader(sys.argv[2]))
            check(found, state(fill))
    dist.barrier()
    # PyTorch's threads may abort a process that is slow to tear itself down.
    sys.stdout.flush()
    os._exit(0)
    """
)


@pytest.mark.parametrize(("saved", "loaded"), [(2, 1), (1, 3)])
def test_any_number_of_ranks_to_any_other(
    tmp_path: Path, run_on_ranks: Callable[..., None], saved: int, loaded: int
) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    run_on_ranks(saved, program, "save", tmp_path / "ckpt")
    run_on_ranks(loaded, program, "load", tmp_path / "ckpt")
