"""Hugging Face Trainer: checkpoints in a Headrace store, and a Headrace loader as its data.

::

    from headrace.frameworks.transformers import TrainerCheckpoints

    arguments = TrainingArguments("out", save_strategy="no", ...)
    loader = headrace.open("texts.hr").loader(batch_size=8, ...)
    trainer = Trainer(model, arguments)
    checkpoints = TrainerCheckpoints(
        trainer, "/nvme/run7", loader=loader, inputs=lambda batch: {"input_ids": ...}, every=500
    )
    checkpoints.train()          # goes on from the newest checkpoint, if there is one
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import transformers

from headrace.checkpoint.checkpointer import Checkpointer
from headrace.checkpoint.handle import Level
from headrace.errors import InvalidArgumentError
from headrace.frameworks import state
from headrace.frameworks.accelerate import check_ranks
from headrace.frameworks.objects import unpack
from headrace.loader import Batch, Loader


class TrainerCheckpoints(transformers.TrainerCallback):  # type: ignore[misc]
    """Saves each `every` steps while a Trainer trains, and resumes it at the exact next sample.

    The trainer gets its batches from the loader, as they are: they are not sharded again and not
    skipped one by one. Trainer's own saving stays as its arguments say; ``save_strategy="no"`` turns
    it off. For one process and data parallel ranks; under FSDP or DeepSpeed use
    ``headrace.checkpoint.HeadraceWriter``, or ``headrace.frameworks.deepspeed``.

    Args:
        trainer: before its first train().
        dest: folder, or ``s3://bucket/prefix``.
        loader: a Headrace loader, made for the trainer's ranks.
        inputs: makes of a batch of the loader what the model takes. Default: all but ``__key__``.
        every: steps between saves; 0: none but those asked for by save().
        wait: level that these saves wait for; by default they return once the state is copied.
        options: as for ``headrace.checkpoint.Checkpointer``.

    Raises:
        InvalidArgumentError: the loader is another rank's; or it gives a number of batches that is no
            multiple of ``gradient_accumulation_steps``: an epoch resumed halfway would lose the rest.
    """

    def __init__(
        self,
        trainer: transformers.Trainer,
        dest: str | os.PathLike[str],
        *,
        loader: Loader,
        inputs: Callable[[Batch], Mapping[str, Any]] | None = None,
        every: int = 0,
        wait: Level = "memory",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        arguments = trainer.args
        rank, world = arguments.process_index, arguments.world_size
        check_ranks(loader, rank, world, "the trainer")
        if len(loader) % arguments.gradient_accumulation_steps:
            raise InvalidArgumentError(
                f"an epoch has {len(loader)} batches, no multiple of gradient_accumulation_steps="
                f"{arguments.gradient_accumulation_steps}: choose another batch size or tail"
            )
        self._trainer, self._loader = trainer, loader
        self._every, self._wait = every, wait
        #: The checkpointer, for list(), prune() and the rest.
        self.checkpointer = Checkpointer(dest, rank=rank, world_size=world, **(options or {}))
        batches = TrainerBatches(loader, inputs or _without_keys)
        trainer.get_train_dataloader = lambda: batches
        trainer.add_callback(self)

    def train(self, **arguments: Any) -> Any:
        """Call ``trainer.train()``, from the newest checkpoint if there is one; then wait for all saves.

        Takes what Trainer.train takes, but ``resume_from_checkpoint``.
        """
        step = self.checkpointer.latest()
        if step is None:
            result = self._trainer.train(**arguments)
        else:
            with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
                self._lay_out(step, folder)
                # The loader is where it has to be: nothing has to be skipped.
                self._trainer.args.ignore_data_skip = True
                result = self._trainer.train(resume_from_checkpoint=folder, **arguments)
        self.checkpointer.wait()
        return result

    def save(self) -> None:
        """Save the present state, at the trainer's step."""
        trainer = self._trainer
        scaler = getattr(trainer.accelerator, "scaler", None)
        parts = {
            "model": trainer.accelerator.unwrap_model(trainer.model),
            "optimizer": trainer.optimizer,
            "scheduler": trainer.lr_scheduler,
            "trainer": json.dumps(dataclasses.asdict(trainer.state), default=str),
            **({"scaler": scaler} if scaler is not None else {}),
        }
        self.checkpointer.save(
            trainer.state.global_step, state.capture(parts), wait=self._wait, loader=self._loader
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._every and state.global_step % self._every == 0:
            self.save()

    def _lay_out(self, step: int, folder: str) -> None:
        """Write the files that Trainer resumes from."""
        import torch

        saved = self.checkpointer.restore(step, loader=self._loader)
        torch.save(saved["model"], os.path.join(folder, "pytorch_model.bin"))
        for part, name in (("optimizer", "optimizer.pt"), ("scheduler", "scheduler.pt")):
            torch.save(unpack(saved[part]), os.path.join(folder, name))
        if "scaler" in saved:
            torch.save(unpack(saved["scaler"]), os.path.join(folder, "scaler.pt"))
        with open(os.path.join(folder, "trainer_state.json"), "w") as file:
            file.write(saved["trainer"])
        torch.save(_rng_file(saved["rng"]), os.path.join(folder, self._rng_name()))

    def _rng_name(self) -> str:
        arguments = self._trainer.args
        if arguments.world_size > 1:
            return f"rng_state_{arguments.process_index}.pth"
        return "rng_state.pth"


def _rng_file(states: dict[str, Any]) -> dict[str, Any]:
    """The states as Trainer keeps them."""
    import numpy
    import torch

    from headrace.checkpoint.rng import set_rng_states

    set_rng_states(states)
    found = {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(),
        "cpu": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.random.get_rng_state_all()
    return found


def _without_keys(batch: Batch) -> Batch:
    return {name: value for name, value in batch.items() if name != "__key__"}


class TrainerBatches:
    """What a Trainer takes for its DataLoader: the loader's batches as inputs of the model."""

    def __init__(self, loader: Loader, inputs: Callable[[Batch], Mapping[str, Any]]) -> None:
        self._loader = loader
        self._inputs = inputs

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for batch in self._loader:
            yield self._inputs(batch)

    def set_epoch(self, epoch: int) -> None:
        """Begin that epoch; where the loader was restored inside it, go on from there."""
        self._loader.set_epoch(epoch)
