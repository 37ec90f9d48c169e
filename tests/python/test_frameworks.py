"""Training under frameworks that is killed and resumed: each sample once, nothing sharded twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from headrace.checkpoint.rng import rng_states, set_rng_states
from headrace.frameworks.deepspeed import HeadraceCheckpointEngine
from headrace.frameworks.objects import pack, unpack

import headrace
from headrace.checkpoint import Checkpointer

BATCH = 40  # of 400 samples: ten batches an epoch
EPOCHS = 2

# What the programs have in common. They log each batch that they train on: step, rank, keys.
COMMON = textwrap.dedent(
    """
    import json, os, signal, sys, torch
    import headrace
    from headrace import transforms as T

    texts, out, die_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
    BATCH, EPOCHS = 40, 2

    def make_loader():
        return headrace.open(texts).loader(
            global_batch_size=BATCH, seed=3, transforms={"cls": T.label()}, output="torch")

    def train_on(step, batch, rank=0):
        with open(os.path.join(out, f"log-{rank}"), "a") as log:
            log.write(json.dumps([step, batch["__key__"]]) + "\\n")
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def inputs(batch):
        return batch["cls"].reshape(-1, 1).float() / 400

    def finished(model):
        if "RANK" not in os.environ or os.environ["RANK"] == "0":
            weights = {name: value.tolist() for name, value in model.state_dict().items()}
            with open(os.path.join(out, "weights"), "w") as file:
                json.dump(weights, file)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    """
)

LIGHTNING = COMMON + textwrap.dedent(
    """
    import pytorch_lightning as L
    from pytorch_lightning.callbacks import ModelCheckpoint
    from headrace.frameworks.lightning import HeadraceCheckpointIO, LoaderState

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))

        def training_step(self, batch, index):
            train_on(self.global_step, batch, self.trainer.global_rank)
            return (self.net(inputs(batch)) - 1).square().mean()

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

        def train_dataloader(self):
            return state.batches

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    state = LoaderState(make_loader())
    folder = os.path.join(out, "checkpoints")
    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto",
        logger=False, enable_progress_bar=False, enable_model_summary=False,
        plugins=[HeadraceCheckpointIO(os.path.join(out, "store"))],
        callbacks=[
            ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=-1, save_last="link"),
            state,
        ],
    )
    model = Model()
    last = os.path.join(folder, "last.ckpt")
    trainer.fit(model, ckpt_path=last if os.path.exists(last) else None, weights_only=False)
    finished(model.net)
    """
)

ACCELERATE = COMMON + textwrap.dedent(
    """
    import accelerate
    from headrace.frameworks.accelerate import AccelerateCheckpoints

    accelerator = accelerate.Accelerator(cpu=True)
    loader = make_loader()
    model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    assert accelerator.prepare(loader) is loader
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    with AccelerateCheckpoints(
        accelerator, os.path.join(out, "store"),
        model=model, optimizer=optimizer, scheduler=scheduler, loader=loader,
    ) as checkpoints:
        step = checkpoints.restore()
        for epoch in range(loader.state_dict()["epoch"], EPOCHS):
            for batch in loader:
                train_on(step, batch, accelerator.process_index)
                optimizer.zero_grad()
                accelerator.backward((model(inputs(batch)) - 1).square().mean())
                optimizer.step()
                scheduler.step()
                step += 1
                if step % 3 == 0:
                    checkpoints.save(step, wait="local")
    finished(accelerator.unwrap_model(model))
    accelerator.end_training()
    """
)

TRANSFORMERS = COMMON + textwrap.dedent(
    """
    import transformers
    from headrace.frameworks.transformers import TrainerCheckpoints

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(
                torch.nn.Linear(1, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))

        def forward(self, x):
            return {"loss": (self.net(x) - 1).square().mean()}

    def seen(batch):
        seen.keys.append(batch["__key__"])
        return {"x": inputs(batch)}
    seen.keys = []

    class Steps(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            keys = [key for batch in seen.keys for key in batch]
            seen.keys.clear()
            train_on(state.global_step, {"__key__": keys}, args.process_index)

    arguments = transformers.TrainingArguments(
        os.path.join(out, "trainer"), num_train_epochs=EPOCHS, learning_rate=0.1, use_cpu=True,
        save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no",
        gradient_accumulation_steps=2, per_device_train_batch_size=BATCH,
    )
    loader = make_loader()
    model = Model()
    trainer = transformers.Trainer(model, arguments, callbacks=[Steps()])
    checkpoints = TrainerCheckpoints(
        trainer, os.path.join(out, "store"), loader=loader, inputs=seen, every=3,
        wait="local")
    checkpoints.train()
    finished(model.net)
    """
)


class Custom:
    """An object that has to be pickled."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and self.number == other.number


def run(program: str, texts: Path, out: Path, die_at: int = -1, world: int = 1) -> None:
    """Run a program to its end, or until it kills itself at a step."""
    out.mkdir(exist_ok=True)
    launcher = [sys.executable]
    if world > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc-per-node", str(world)]
    script = out / "program.py"
    script.write_text(program)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*launcher, str(script), str(texts), str(out), str(die_at)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == (0 if die_at < 0 else -signal.SIGKILL), done.stdout + done.stderr


def logged(out: Path, rank: int = 0) -> list[tuple[int, list[str]]]:
    return [tuple(json.loads(line)) for line in (out / f"log-{rank}").read_text().splitlines()]


def expected_keys(texts: Path, rank: int = 0, world: int = 1) -> list[list[str]]:
    loader = headrace.open(texts).loader(
        global_batch_size=BATCH, seed=3, rank=rank, world_size=world
    )
    with loader:
        return [batch["__key__"] for _ in range(EPOCHS) for batch in loader]


@pytest.mark.parametrize(
    ("framework", "program", "batches", "die_at"),
    [
        ("pytorch_lightning", LIGHTNING, 1, 13),
        ("accelerate", ACCELERATE, 1, 14),
        ("transformers", TRANSFORMERS, 2, 8),
    ],
)
def test_a_killed_training_goes_on_exactly(
    tmp_path: Path, texts: Path, framework: str, program: str, batches: int, die_at: int
) -> None:
    pytest.importorskip(framework)
    goes_on_exactly(tmp_path, texts, program, batches, die_at)


def goes_on_exactly(tmp_path: Path, texts: Path, program: str, batches: int, die_at: int) -> None:
    """Check that a run that is killed and started again equals one that is not; each step takes
    `batches`."""
    run(program, texts, tmp_path / "whole")
    whole = logged(tmp_path / "whole")
    flat = [key for keys in expected_keys(texts) for key in keys]
    assert [key for _, keys in whole for key in keys] == flat
    assert len(whole) == 20 // batches

    run(program, texts, tmp_path / "killed", die_at)
    assert logged(tmp_path / "killed")[-1][0] == die_at
    killed = len(logged(tmp_path / "killed"))
    run(program, texts, tmp_path / "killed")
    resumed = logged(tmp_path / "killed")[killed:]
    saved = die_at // 3 * 3  # what was trained on after it is trained on again
    assert resumed[0][0] == saved
    history = logged(tmp_path / "killed")[:saved] + resumed
    assert history == whole
    # The same weights as if it had never been killed, Dropout and all.
    assert (tmp_path / "killed/weights").read_text() == (tmp_path / "whole/weights").read_text()


@pytest.mark.parametrize(
    ("framework", "program"),
    [
        ("accelerate", ACCELERATE),
        pytest.param("pytorch_lightning", LIGHTNING, marks=pytest.mark.full),
        pytest.param("transformers", TRANSFORMERS, marks=pytest.mark.full),
    ],
)
def test_two_ranks_are_not_sharded_twice(
    tmp_path: Path, texts: Path, framework: str, program: str
) -> None:
    pytest.importorskip(framework)
    run(program, texts, tmp_path, world=2)
    for rank in range(2):
        keys = [key for _, keys in logged(tmp_path, rank) for key in keys]
        assert keys == [key for keys in expected_keys(texts, rank, 2) for key in keys]


def test_lightnings_paths_name_checkpoints(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning")
    from headrace.frameworks.lightning import HeadraceCheckpointIO

    store = HeadraceCheckpointIO(tmp_path / "store")
    paths = [str(tmp_path / "checkpoints" / f"{name}.ckpt") for name in "abc"]
    for step, path in enumerate(paths):
        store.save_checkpoint(
            {"global_step": step, "w": torch.full((99,), step), "o": Custom(step)}, path
        )
    store.remove_checkpoint(paths[1])
    assert not os.path.exists(paths[1])
    assert [entry["step"] for entry in Checkpointer(tmp_path / "store").list()] == [0, 2]
    # The same path, and the same step under another path.
    store.save_checkpoint({"global_step": 2, "w": torch.zeros(99), "o": Custom(7)}, paths[0])
    assert store.load_checkpoint(paths[0])["o"] == Custom(7)
    assert store.load_checkpoint(paths[2])["o"] == Custom(2)
    with pytest.raises(Exception, match=r"[Ww]eights"):
        store.load_checkpoint(paths[2], weights_only=True)
    torch.save({"w": 1}, tmp_path / "other.ckpt")
    assert store.load_checkpoint(tmp_path / "other.ckpt", weights_only=True) == {"w": 1}
    store.teardown()


# ---- DeepSpeed: its engine, as far as checkpoints go, is played by a double ----

DEEPSPEED = COMMON + textwrap.dedent(
    """
    from types import SimpleNamespace
    from headrace.frameworks.deepspeed import HeadraceCheckpointEngine

    class Engine:
        '''What DeepSpeedEngine does with its checkpoint engine: order, names and files.'''

        def __init__(self, model, optimizer, folder):
            self.module, self.optimizer, self.folder = model, optimizer, folder
            self.checkpoint_engine, self.global_steps = None, 0

        def save_checkpoint(self, client_state):
            tag = f"global_step{self.global_steps}"
            info = SimpleNamespace(tag=tag, save_dir=self.folder, save_latest=True)
            storage = self.checkpoint_engine
            storage.makedirs(os.path.join(self.folder, tag), exist_ok=True)
            storage.create(info)
            state = {"module": self.module.state_dict(), "global_steps": self.global_steps,
                     "sparse_tensor_module_names": set(), **client_state}
            storage.save(state, os.path.join(self.folder, tag, "mp_rank_00_model_states.pt"))
            zero = {"optimizer_state_dict": self.optimizer.state_dict(), "ds_version": "0"}
            storage.save(zero, os.path.join(
                self.folder, tag, "zero_pp_rank_0_mp_rank_00_optim_states.pt"))
            storage.commit(info)
            with open(os.path.join(self.folder, "latest"), "w") as file:
                file.write(tag)

        def load_checkpoint(self):
            latest = os.path.join(self.folder, "latest")
            if not os.path.exists(latest):
                return {}
            with open(latest) as file:
                tag = file.read()
            storage = self.checkpoint_engine
            state = storage.load(os.path.join(self.folder, tag, "mp_rank_00_model_states.pt"),
                                 map_location=lambda storage, location: storage)
            zero = storage.load(os.path.join(
                self.folder, tag, "zero_pp_rank_0_mp_rank_00_optim_states.pt"), map_location="cpu")
            assert state["sparse_tensor_module_names"] == set()
            self.module.load_state_dict(state["module"])
            self.optimizer.load_state_dict(zero["optimizer_state_dict"])
            self.global_steps = state["global_steps"]
            return state

    loader = make_loader()
    model = torch.nn.Linear(1, 4)
    engine = Engine(model, torch.optim.AdamW(model.parameters(), lr=0.1), os.path.join(out, "ds"))
    engine.checkpoint_engine = HeadraceCheckpointEngine(os.path.join(out, "store"))
    client = engine.load_checkpoint()
    if client:
        loader.load_state_dict(client["loader"])
    for epoch in range(loader.state_dict()["epoch"], EPOCHS):
        for batch in loader:
            train_on(engine.global_steps, batch)
            engine.optimizer.zero_grad()
            (model(inputs(batch)) - 1).square().mean().backward()
            engine.optimizer.step()
            engine.global_steps += 1
            if engine.global_steps % 3 == 0:
                engine.save_checkpoint({"loader": loader.state_dict()})
    finished(model)
    """
)


def test_deepspeeds_engine(tmp_path: Path, texts: Path) -> None:
    goes_on_exactly(tmp_path, texts, DEEPSPEED, 1, 13)


# The package itself, where it is installed: its engine of one process, on the CPU.
REAL_DEEPSPEED = COMMON + textwrap.dedent(
    """
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(
        DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_SIZE="1",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import deepspeed
    from headrace.frameworks.deepspeed import HeadraceCheckpointEngine

    loader = make_loader()
    model = torch.nn.Linear(1, 4)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": BATCH,
            "zero_optimization": {"stage": 1},
            "zero_allow_untested_optimizer": True,
        },
    )
    engine.checkpoint_engine = HeadraceCheckpointEngine(os.path.join(out, "store"))
    folder = os.path.join(out, "ds")
    _, client = engine.load_checkpoint(folder)
    if client:
        loader.load_state_dict(client["loader"])
    for epoch in range(loader.state_dict()["epoch"], EPOCHS):
        for batch in loader:
            train_on(engine.global_steps, batch)
            engine.backward((engine(inputs(batch)) - 1).square().mean())
            engine.step()
            if engine.global_steps % 3 == 0:
                engine.save_checkpoint(folder, client_state={"loader": loader.state_dict()})
    finished(model)
    sys.stdout.flush()
    os._exit(0)  # its process group would be waited for
    """
)


def test_deepspeed_itself(tmp_path: Path, texts: Path) -> None:
    pytest.importorskip("deepspeed")
    goes_on_exactly(tmp_path, texts, REAL_DEEPSPEED, 1, 13)


def test_deepspeed_latest_names_only_what_is_whole(tmp_path: Path) -> None:
    engine = HeadraceCheckpointEngine(tmp_path / "store")
    path = str(tmp_path / "model_states.pt")
    engine.create("global_step1")
    engine.save({"w": torch.ones(3)}, path)
    assert not os.path.exists(path)
    assert engine.commit("global_step1")
    assert torch.equal(engine.load(path)["w"], torch.ones(3))
    # One that is begun and not committed leaves what was there.
    engine.create("global_step2")
    engine.save({"w": torch.zeros(3)}, path)
    engine.create("global_step3")
    assert torch.equal(engine.load(path)["w"], torch.ones(3))
    with pytest.raises(headrace.StateError, match="was begun"):
        engine.commit("global_step9")
    model = str(tmp_path / "pytorch_model.bin")
    engine.save({"w": torch.ones(2)}, model)
    assert torch.load(model)["w"].tolist() == [1, 1]
    engine.cleanup()
    elsewhere = HeadraceCheckpointEngine(tmp_path / "other")
    assert torch.equal(elsewhere.load(path)["w"], torch.ones(3))


def test_objects_are_pickled_and_the_rest_is_not(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "w": torch.ones(3),
        "set": {1, 2},
        "module": torch.nn.Linear(1, 1).state_dict(),
        "keys": {(1, 2): 3},
        "deep": [({"custom": Custom(1)}, 5)],
        "own": {"headrace.pickled": b"x"},
    }
    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, pack(state), wait="local")
        restored = checkpointer.restore()
    assert torch.equal(restored["w"], state["w"])
    assert torch.equal(restored["module"]["weight"], state["module"]["weight"])
    found = unpack(restored)
    assert found["set"] == {1, 2} and found["keys"] == {(1, 2): 3}
    assert found["deep"] == [({"custom": Custom(1)}, 5)] and found["own"] == state["own"]
    with pytest.raises(Exception, match=r"[Ww]eights"):
        unpack(restored, weights_only=True)


def test_random_numbers_go_on(tmp_path: Path) -> None:
    import random

    import numpy

    def draw() -> Any:
        return (random.random(), numpy.random.rand(), torch.rand(2).tolist())

    with Checkpointer(tmp_path / "ckpt") as checkpointer:
        checkpointer.save(1, rng_states(), wait="local")
        expected = draw()
        set_rng_states(checkpointer.restore())
        assert draw() == expected
