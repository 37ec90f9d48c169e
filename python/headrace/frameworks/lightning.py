"""Lightning: checkpoints in a Headrace store, and the loader's state in them.

::

    from headrace.frameworks.lightning import HeadraceCheckpointIO, LoaderState

    loader = headrace.open("photos.hr").loader(batch_size=64, ...)
    state = LoaderState(loader)
    trainer = Trainer(
        plugins=[HeadraceCheckpointIO("/nvme/run7")],
        callbacks=[ModelCheckpoint("checkpoints", every_n_train_steps=500), state],
    )
    trainer.fit(model, state.batches, ckpt_path="last")

Works with the packages ``lightning`` and ``pytorch_lightning``; the one that was imported first counts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.checkpoint.checkpointer import Checkpointer
from headrace.checkpoint.handle import Level
from headrace.checkpoint.rng import rng_states, set_rng_states
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.frameworks import pointers
from headrace.frameworks.objects import pack, unpack
from headrace.loader import Batch, Loader


def _bases() -> tuple[Any, Any]:
    if "pytorch_lightning" not in sys.modules:
        try:
            from lightning.fabric.plugins import CheckpointIO
            from lightning.pytorch import Callback

            return Callback, CheckpointIO
        except ImportError:
            pass
    from lightning_fabric.plugins import CheckpointIO
    from pytorch_lightning import Callback

    return Callback, CheckpointIO


_Callback, _CheckpointIO = _bases()


class HeadraceCheckpointIO(_CheckpointIO):  # type: ignore[misc, valid-type]
    """Saves Lightning's checkpoints into a Headrace store; give it to ``Trainer(plugins=...)``.

    Where Lightning expects a file (``checkpoints/epoch=0-step=500.ckpt``) a small one is put that names
    the checkpoint in the store. Which ones are kept is ModelCheckpoint's affair (``save_top_k``); what
    it removes is removed from the store. The step in the store is Lightning's ``global_step``.

    A save returns when the checkpoint is published. Values that are no tensors, numbers, strings or
    containers of these are pickled. FSDP and ModelParallel strategies of Lightning save past this: use
    ``headrace.checkpoint.HeadraceWriter`` there.

    Args:
        dest: folder, or ``s3://bucket/prefix``.
        wait: level that a save waits for; default: what the store gives.
        loader: its state and dataset version are recorded in the manifest, for who looks at it.
        options: as for ``headrace.checkpoint.Checkpointer``, but ``tiers``.
    """

    def __init__(
        self,
        dest: str | os.PathLike[str],
        *,
        wait: Level | None = None,
        loader: Loader | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        pointers.check_options(options)
        # Rank 0 alone saves; the others only read. Lightning says which ones are kept.
        self._checkpointer = Checkpointer(dest, rank=0, world_size=1, **{"keep": 0, **options})
        self._wait: Level = wait or self._checkpointer._level
        self._loader = loader

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        if storage_options is not None:
            raise InvalidArgumentError("storage_options belong to HeadraceCheckpointIO(...)")
        name = os.fspath(path)
        before = self._pointer_at(name)
        step = int(checkpoint.get("global_step", 0))
        pointers.save(self._checkpointer, step, pack(checkpoint), self._wait, self._loader).write(
            name
        )
        if before is not None:  # the path was used again
            pointers.remove(before, self._checkpointer)

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Callable[..., Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        name = os.fspath(path)
        pointer = pointers.read_pointer(name)
        if pointer is None:
            return self._load_other(name, weights_only)
        state = pointers.load(pointer, self._checkpointer, name)
        loaded: dict[str, Any] = unpack(state, bool(weights_only))
        return loaded

    def _load_other(self, path: str, weights_only: bool | None) -> dict[str, Any]:
        """A file that Lightning itself wrote, from before."""
        import torch

        loaded: dict[str, Any] = torch.load(
            path, map_location="cpu", weights_only=bool(weights_only)
        )
        return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        pointer = self._pointer_at(name)
        # The file first: it must not name what is gone.
        if "://" in name:
            import fsspec

            files, inside = fsspec.core.url_to_fs(name)
            if files.exists(inside):
                files.rm(inside)
        elif os.path.lexists(name):
            os.unlink(name)
        if pointer is not None:
            pointers.remove(pointer, self._checkpointer)

    def _pointer_at(self, path: str) -> pointers.Pointer | None:
        try:
            return None if os.path.islink(path) else pointers.read_pointer(path)
        except (FileNotFoundError, NotFoundError):
            return None

    def teardown(self) -> None:
        self._checkpointer.close()


class LoaderState(_Callback):  # type: ignore[misc, valid-type]
    """Keeps a Headrace loader's position in Lightning's checkpoints, and goes on from there; with one rank
    the states of the random number generators, too.

    Give ``state.batches`` to ``trainer.fit``, or return it from ``train_dataloader()``, in place of
    the loader: Lightning makes iterators that it does not use, and each of a loader's begins an epoch.
    The loader shards itself, and Lightning leaves it alone.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._rng: dict[str, Any] | None = None
        #: The loader's batches, for Lightning.
        self.batches = Batches(loader)

    @property
    def state_key(self) -> str:
        return "headrace.LoaderState"

    def state_dict(self) -> dict[str, Any]:
        # Lightning saves this of rank 0 alone, so random numbers are of use with one rank only.
        rng = rng_states() if self._loader.world_size == 1 else None
        return {"loader": self._loader.state_dict(), "rng": rng}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._loader.load_state_dict(state_dict["loader"])
        self._rng = state_dict.get("rng") if self._loader.world_size == 1 else None

    def on_train_batch_start(self, *_: Any) -> None:
        # Now, since starting a training may have drawn some.
        if self._rng is not None:
            set_rng_states(self._rng)
            self._rng = None


class Batches:
    """A loader whose epoch begins with the first batch that is asked for, not with its iterator."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        yield from self._loader
