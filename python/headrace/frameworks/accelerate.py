"""Hugging Face Accelerate: checkpoints in a Headrace store, with the loader's state.

::

    from headrace.frameworks.accelerate import AccelerateCheckpoints

    accelerator = Accelerator()
    loader = headrace.open("photos.hr").loader(batch_size=64, ...)    # knows its rank by itself
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    with AccelerateCheckpoints(
        accelerator, "/nvme/run7", model=model, optimizer=optimizer, scheduler=scheduler, loader=loader
    ) as checkpoints:
        step = checkpoints.restore()          # 0 when there is none
        for batch in loader:
            ...
            step += 1
            if step % 500 == 0:
                checkpoints.save(step)

``accelerator.prepare(loader)`` gives a Headrace loader back as it is: only PyTorch's DataLoader is
sharded. ``accelerator.save_state`` is not needed, and goes its own way.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import accelerate

from headrace.checkpoint.checkpointer import Checkpointer
from headrace.checkpoint.handle import Level, SaveHandle
from headrace.errors import InvalidArgumentError
from headrace.frameworks import state
from headrace.loader import Loader


class AccelerateCheckpoints:
    """Saves and restores what an Accelerator has prepared. On all ranks alike.

    Args:
        accelerator: gives the ranks, and unwraps models.
        dest: folder, or ``s3://bucket/prefix``.
        loader: a Headrace loader.
        options: as for ``headrace.checkpoint.Checkpointer``; and what is saved, by name: models,
            optimizers, schedulers, all that has ``state_dict`` and ``load_state_dict``.

    Raises:
        InvalidArgumentError: the loader was made for other ranks than the accelerator's.
    """

    def __init__(
        self,
        accelerator: accelerate.Accelerator,
        dest: str | os.PathLike[str],
        *,
        loader: Loader | None = None,
        options: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> None:
        self._accelerator = accelerator
        rank, world = accelerator.process_index, accelerator.num_processes
        check_ranks(loader, rank, world, "the accelerator")
        self._loader = loader
        self._parts = {name: self._unwrapped(part) for name, part in parts.items()}
        scaler = getattr(accelerator, "scaler", None)
        if scaler is not None and "scaler" not in self._parts:
            self._parts["scaler"] = scaler
        #: The checkpointer, for list(), prune() and the rest.
        self.checkpointer = Checkpointer(dest, rank=rank, world_size=world, **(options or {}))

    def _unwrapped(self, part: Any) -> Any:
        import torch

        is_model = isinstance(part, torch.nn.Module)
        return self._accelerator.unwrap_model(part) if is_model else part

    def save(self, step: int, *, wait: Level = "memory") -> SaveHandle:
        """Save all; returns when it is copied, or safe at level `wait`."""
        return self.checkpointer.save(
            step, state.capture(self._parts), wait=wait, loader=self._loader
        )

    def restore(self, step: int | Literal["latest"] = "latest") -> int:
        """Load a checkpoint, the newest by default; returns its step. 0 when there is none at all."""
        if step == "latest":
            latest = self.checkpointer.latest()
            if latest is None:
                return 0
            step = latest
        state.restore(self.checkpointer, step, self._parts, self._loader)
        return step

    def close(self) -> None:
        """Wait for all saves and give the memory back."""
        self.checkpointer.close()

    def __enter__(self) -> AccelerateCheckpoints:
        return self

    def __exit__(self, *error: object) -> None:
        self.checkpointer.__exit__(*error)


def check_ranks(loader: Loader | None, rank: int, world: int, whose: str) -> None:
    """Raise InvalidArgumentError for a loader that would give these ranks the wrong samples."""
    if loader is not None and (loader.rank, loader.world_size) != (rank, world):
        raise InvalidArgumentError(
            f"the loader is that of rank {loader.rank} of {loader.world_size}, and {whose} has rank {rank} "
            f"of {world}: make the loader after it, or with rank={rank}, world_size={world}"
        )
