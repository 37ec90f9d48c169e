"""DeepSpeed: its checkpoints in Headrace stores.

::

    from headrace.frameworks.deepspeed import HeadraceCheckpointEngine

    engine, *_ = deepspeed.initialize(...)
    engine.checkpoint_engine = HeadraceCheckpointEngine("/nvme/run7")
    engine.load_checkpoint("checkpoints", ...)
    loader.load_state_dict(client_state["loader"])
    ...
    engine.save_checkpoint("checkpoints", client_state={"loader": loader.state_dict()})

DeepSpeed keeps its files' names and the ``latest`` file; each file is a small one that names a part of
a checkpoint. Each rank has a store of its own, ``DEST/rank-0``, ``DEST/rank-1``..., since DeepSpeed's
files are each rank's own; any rank reads any of them.
"""

from __future__ import annotations

import os
import re
from typing import Any

from headrace.checkpoint.checkpointer import Checkpointer
from headrace.distributed import rank_and_world
from headrace.errors import StateError
from headrace.frameworks import pointers
from headrace.frameworks.objects import pack, unpack

try:
    from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine
except ImportError:  # not installed: the interface has no code that is needed
    CheckpointEngine = object


class HeadraceCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """DeepSpeed's checkpoint engine over Headrace stores.

    ``save`` keeps what it is given; ``commit`` writes and publishes all of it, and only then puts the
    files that DeepSpeed looks for, so what ``latest`` names is whole. Values that are no tensors,
    numbers, strings or containers of these are pickled.

    The step is the last number of the tag (``global_step500``), or one more than the newest.

    Args:
        dest: folder, or ``s3://bucket/prefix``, of all ranks' stores.
        keep: checkpoints to keep in each rank's store: the newest; 0 keeps all.
        options: as for ``headrace.checkpoint.Checkpointer``, but ``tiers``.
    """

    def __init__(self, dest: str | os.PathLike[str], *, keep: int = 3, **options: Any) -> None:
        # Not the base's own: that wants DeepSpeed's settings.
        self.name = "HeadraceCheckpointEngine"
        pointers.check_options(options)
        rank, _ = rank_and_world(None, None)
        url = f"{os.fspath(dest).rstrip('/')}/rank-{rank}"
        self._checkpointer = Checkpointer(url, rank=0, world_size=1, keep=keep, **options)
        self._tag: str | None = None
        self._parts: dict[str, Any] = {}
        self._paths: dict[str, str] = {}
        self._info: Any = None

    # --- DeepSpeed's interface --------------------------------------------------------------------

    def create(self, info: Any) -> None:
        """A checkpoint begins; what was saved for one that was never committed is dropped."""
        self._tag = str(getattr(info, "tag", info))
        self._parts, self._paths = {}, {}

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        os.makedirs(path, exist_ok=exist_ok)

    def save(self, state_dict: Any, path: str) -> None:
        """Take a part; it must stay as it is until commit, as DeepSpeed does it.

        A model that is saved for other tools (``save_16bit_model``) is written as they expect it.
        """
        if path.endswith(".bin"):
            _save_whole(state_dict, path)
            return
        # A name that says which file it was, and no two of them the same.
        part = f"{os.path.basename(path)}-{len(self._parts)}"
        self._parts[part] = pack(state_dict)
        self._paths[part] = os.fspath(path)

    def commit(self, info: Any) -> bool:
        """Write and publish all parts, on all ranks. DeepSpeed goes on to write ``latest``.

        Raises:
            HeadraceError: this rank's save failed.
            StateError: another one's did; ``latest`` stays on every rank what it was.
        """
        tag = str(getattr(info, "tag", info))
        failure: Exception | None = None
        try:
            self._publish(tag)
        except Exception as error:
            failure = error
        _agree(failure)
        return True

    def _publish(self, tag: str) -> None:
        if self._tag is not None and tag != self._tag:
            raise StateError(f"commit of {tag!r}, where {self._tag!r} was begun")
        if self._parts:
            named = pointers.save(
                self._checkpointer, self._step_of(tag), self._parts, self._checkpointer._level
            )
            for part, path in self._paths.items():
                pointers.Pointer(named.store, named.step, named.epoch, named.attempt, part).write(
                    path
                )
        self._tag, self._parts, self._paths = None, {}, {}

    def load(self, path: str, map_location: Any = None) -> Any:
        """Return the part that the file at `path` names, on the CPU or where `map_location` says; a file
        that DeepSpeed wrote itself is read as it does.
        """
        import torch

        pointer = pointers.read_pointer(path)
        if pointer is None:
            return torch.load(path, map_location=map_location, weights_only=False)
        loaded = unpack(pointers.load(pointer, self._checkpointer, path))
        return loaded if map_location is None else _moved(loaded, map_location)

    def is_data_parallel_writer(self, dp_rank: int) -> bool:
        return dp_rank == 0

    def is_decoupled(self) -> bool:
        return False

    def set_commit_info(self, info: Any) -> None:
        self._info = info

    def get_commit_info(self) -> Any:
        return self._info

    def preserves_storage_sharing(self) -> bool:
        # Of what shares memory each byte is stored once; no clones have to be made beforehand.
        return False

    def cleanup(self) -> None:
        self._checkpointer.close()

    # ----------------------------------------------------------------------------------------------

    def _step_of(self, tag: str) -> int:
        numbers = re.findall(r"\d+", tag)
        if numbers:
            return int(numbers[-1])
        latest = self._checkpointer.latest()
        return 0 if latest is None else latest + 1


def _agree(failure: Exception | None) -> None:
    """Raise on all ranks when one has failed: DeepSpeed's rank 0 does not wait for the others."""
    import torch.distributed as distributed

    told: list[str | None] = [None if failure is None else str(failure)]
    if distributed.is_available() and distributed.is_initialized():
        told = [None] * distributed.get_world_size()
        distributed.all_gather_object(told, None if failure is None else str(failure))
    if failure is not None:
        raise failure
    failed = {rank: words for rank, words in enumerate(told) if words is not None}
    if failed:
        shown = "; ".join(f"rank {rank}: {words}" for rank, words in failed.items())
        raise StateError(f"{len(failed)} ranks could not save: {shown}")


def _save_whole(state_dict: Any, path: str) -> None:
    import torch

    temporary = f"{path}.headrace-{os.getpid()}"
    with open(temporary, "wb") as file:
        torch.save(state_dict, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _moved(value: Any, where: Any) -> Any:
    """Tensors where torch.load's map_location says: a device, its name, or a function."""
    import torch

    if isinstance(value, torch.Tensor):
        if callable(where):
            moved = where(value.untyped_storage(), "cpu")
            return value if moved is None or moved.device.type == "cpu" else value.to(moved.device)
        if isinstance(where, dict):
            where = where.get("cpu", "cpu")
        return value.to(where)
    if isinstance(value, dict):
        return {key: _moved(child, where) for key, child in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_moved(child, where) for child in value)
    return value
