"""The side of ``dcp.save`` and ``dcp.async_save`` that writes."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter
from torch.futures import Future

try:
    from torch.distributed.checkpoint.storage import WriteResult
except ImportError:  # a newer PyTorch
    from torch.distributed.checkpoint.planner import WriteResult

from headrace.checkpoint.dcp.layout import Written, encode_document, path_of, plain_node, step_of
from headrace.checkpoint.dcp.session import Piece, Session, Submission
from headrace.checkpoint.dcp.stager import HeadraceStager, Staged
from headrace.checkpoint.dtypes import names_of_torch
from headrace.checkpoint.handle import Level
from headrace.checkpoint.tree import path_text
from headrace.errors import InvalidArgumentError, StateError

_KEY = "headrace"  # of what the coordinator tells the ranks, in SavePlan.storage_data


class HeadraceWriter(StorageWriter):  # type: ignore[misc]
    """Writes what DCP saves into a Headrace store: published whole or not at all, a step never
    overwritten, each byte with its checksum, unchanged tensors not written again.

    ``dcp.save`` returns when the checkpoint is published. Keep one writer for all saves of a run; it
    stages for ``dcp.async_save``, too (HeadraceStager). The first save shuts out whoever wrote to the
    store before.

    The step is the last number of ``checkpoint_id``: ``dcp.save(..., checkpoint_id="step-400")``.
    Without an id it is the newest one in the store + 1.

    Args:
        dest: folder, or ``s3://bucket/prefix``.
        keep, keep_every, level, arena_bytes, threads, reuse, publish_timeout, storage_options: as for
            ``headrace.checkpoint.Checkpointer``.

    Raises (from ``dcp.save``; of several ranks inside DCP's CheckpointException):
        InvalidArgumentError: tensors that cannot be stored exactly, or an id without a number.
        HeadraceError: the save failed; the checkpoint before is still the newest.
    """

    _synchronize_after_execute = False  # of AsyncStager

    def __init__(
        self,
        dest: str | os.PathLike[str],
        *,
        keep: int = 3,
        keep_every: int = 0,
        level: Level | None = None,
        arena_bytes: int | str | None = None,
        threads: int | None = None,
        reuse: bool = True,
        publish_timeout: float = 1800.0,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        self._options = (
            *(dest, level, arena_bytes, threads, reuse, publish_timeout, storage_options),
        )
        self._keep, self._keep_every = keep, keep_every
        self._start()

    def _start(self) -> None:
        self._session = Session(*self._options)
        self._asked: int | None = None
        self._save_id = uuid.uuid4().hex
        self._told: dict[str, Any] | None = None  # by the coordinator, for this save
        self._under_way = False  # on the coordinator: a save began and has not been published
        self._seen: set[str] = set()
        self._staged: Staged | None = None
        self._pending: tuple[Submission, dict[str, Any]] | None = None
        #: Of the last save that was published here: bytes, reused and written bytes, seconds.
        self.report: dict[str, Any] = {}

    # A process that saves for this one gets a writer of its own.
    def __getstate__(self) -> Any:
        return (self._options, self._keep, self._keep_every)

    def __setstate__(self, state: Any) -> None:
        self._options, self._keep, self._keep_every = state
        self._start()

    @property
    def checkpoint_id(self) -> str:
        """The store."""
        return self._session.url

    # --- DCP's interface --------------------------------------------------------------------------

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self._asked = None if checkpoint_id is None else step_of(checkpoint_id)
        self._save_id = uuid.uuid4().hex

    def storage_meta(self) -> Any:
        return dcp_metadata.StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self._save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._told = None
        self._pending = None
        if not kwargs.get("use_collectives", True) and _group_size() > 1:
            raise InvalidArgumentError(
                "use_collectives=False: ranks that do not know of each other cannot publish one "
                "checkpoint; leave it True, or use headrace.checkpoint.Checkpointer"
            )

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        session = self._session
        cached = not all(getattr(plan, "usable", True) for plan in plans)
        if self._under_way and cached:
            raise StateError(
                "the save before failed: after that plan caching needs a new HeadraceWriter, and a "
                "planner whose cache is empty"
            )
        if session.epoch is None or self._under_way:  # ranks may have counted attempts differently
            session.take_over()
        if self._asked is None:
            latest = session.latest_step()
            self._asked = 0 if latest is None else latest + 1
        self._under_way = True
        told = {
            "token": self._save_id,
            "epoch": session.epoch,
            "step": self._asked,
            "world_size": len(plans),
        }
        self._told = {**told, "rank": 0}
        return [
            dataclasses.replace(plan, storage_data={_KEY: {**told, "rank": rank}})
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        is_coordinator = self._told is not None
        told = self._told or self._told_in(plan)
        self._session.join(told["epoch"])
        pieces, results = self._resolve(plan, planner)
        submission = self._submission(pieces)
        if is_coordinator:
            self._pending = (submission, told)
        else:
            submission.submit(_info(told, b""))
            self._asked = None
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Any, results: list[list[WriteResult]]) -> None:
        if self._pending is None:
            raise StateError("finish: nothing was written before")
        (submission, told), self._pending = self._pending, None
        written = {result.index.fqn: result.storage_data for ranks in results for result in ranks}
        tree = encode_document(written, metadata.planner_data)
        saver = submission.saver
        number = submission.submit(_info(told, tree, _dataset_version(written)))
        self.report = saver.wait(number, None)
        self._under_way = False
        self._asked = None
        metadata.storage_meta = self.storage_meta()
        if self._keep > 0:
            self._session.store.prune(
                epoch=self._session.epoch,
                keep_last=self._keep,
                keep_every=self._keep_every,
                level=self._session.level,
                dry_run=False,
            )

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        try:
            step_of(checkpoint_id)
        except InvalidArgumentError:
            return False
        return True

    # --- staging ----------------------------------------------------------------------------------

    @property
    def should_synchronize_after_execute(self) -> bool:
        return False

    def stage(self, state_dict: Any, **_: Any) -> Any:
        """As HeadraceStager.stage."""
        return HeadraceStager(self).stage(state_dict)

    def synchronize_staging(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Give the arena back. A save that is under way fails."""
        self._pending = self._staged = None
        self._session.close()

    def _begin_stage(self, state_bytes: int, tensors: Sequence[Any]) -> Staged | None:
        """Copy tensors into the arena; None while this rank has none."""
        if self._staged is not None:
            self._staged.give_back()
            self._staged = None
        if self._session.epoch is None:
            if _group_size() > 1:
                return None
            self._session.take_over()
        self._staged = Staged(self._session.saver(state_bytes), tensors)
        return self._staged

    # --- writing ----------------------------------------------------------------------------------

    def _told_in(self, plan: SavePlan) -> dict[str, Any]:
        """What the coordinator told this rank; a planner that caches plans gives an old one."""
        data = plan.storage_data
        if not isinstance(data, Mapping) or _KEY not in data:
            raise StateError(
                "the planner dropped SavePlan.storage_data, by which the ranks agree on a step"
            )
        told = dict(data[_KEY])
        if told["token"] in self._seen:
            if self._session.epoch is None or self._asked is None:
                raise StateError(
                    "plan caching: keep one HeadraceWriter for all saves, and give each a checkpoint_id"
                )
            told["epoch"], told["step"] = self._session.epoch, self._asked
        self._seen.add(told["token"])
        return told

    def _resolve(
        self, plan: SavePlan, planner: SavePlanner
    ) -> tuple[list[Piece], list[WriteResult]]:
        pieces: list[Piece] = []
        results: list[WriteResult] = []
        refused: list[str] = []
        for item in plan.items:
            path = path_of(item.index.fqn, plan.planner_data)
            data = planner.resolve_data(item)
            try:
                if item.type == WriteItemType.BYTE_IO:
                    stream = data.getvalue() if hasattr(data, "getvalue") else bytes(data)
                    written = Written(path, None, plain_node(stream))
                    piece = None if written.node is not None else _stream_piece(path, stream)
                    if piece is not None:
                        written.dtype = "bytes"
                else:
                    piece = _tensor_piece(item, path, data)
                    written = Written(path, piece.dtype)
            except InvalidArgumentError as error:
                refused.append(f"{path_text(path)} ({error.message})")
                continue
            if piece is not None:
                pieces.append(piece)
            size = 0 if piece is None else piece.num_bytes
            results.append(WriteResult(index=item.index, size_in_bytes=size, storage_data=written))
        if refused:
            shown = "; ".join(refused[:20]) + ("; ..." if len(refused) > 20 else "")
            raise InvalidArgumentError(f"{len(refused)} values cannot be stored exactly: {shown}")
        return pieces, results

    def _submission(self, pieces: list[Piece]) -> Submission:
        staged, self._staged = self._staged, None
        submission = None if staged is None else staged.submission(pieces)
        if submission is None:
            total = sum(map(_room, pieces))
            submission = Submission(self._session.saver(total), pieces, None)
        return submission


def _room(piece: Piece) -> int:
    return (piece.num_bytes + 63) // 64 * 64


def _group_size() -> int:
    import torch.distributed as distributed

    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if ready else 1


def _tensor_piece(item: WriteItem, path: Any, tensor: Any) -> Piece:
    tensor = tensor.detach()
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise InvalidArgumentError(f"a tensor of layout {tensor.layout}, or a quantized one")
    name = names_of_torch().get(tensor.dtype)
    if name is None:
        raise InvalidArgumentError(f"a tensor of {tensor.dtype}")
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    chunk = item.tensor_data.chunk
    if tuple(tensor.shape) != tuple(chunk.sizes):
        raise InvalidArgumentError(
            f"the planner gave {tuple(tensor.shape)} for a part of {tuple(chunk.sizes)}"
        )
    direct = tensor.device.type == "cpu" and tensor.is_contiguous()
    return Piece(
        path,
        name,
        tuple(item.tensor_data.size),
        tuple(chunk.offsets),
        tuple(chunk.sizes),
        tensor.numel() * tensor.element_size(),
        tensor.data_ptr() if direct else 0,
        tensor,
        None if direct else tensor,
    )


def _stream_piece(path: Any, stream: bytes) -> Piece:
    import numpy

    view = numpy.frombuffer(stream, dtype=numpy.uint8)
    address = view.ctypes.data if stream else 0
    shape = (len(stream),)
    return Piece(path, "uint8", shape, (0,), shape, len(stream), address, view)


def _dataset_version(written: Mapping[str, Written]) -> str:
    """The dataset version of a Headrace loader that is part of the state."""
    for name, one in written.items():
        if one.node == {"v": "headrace-loader-state"} and name.endswith("format"):
            version = written.get(name.removesuffix("format") + "dataset_version")
            if version is not None and version.node is not None:
                return str(version.node.get("v", ""))
    return ""


def _info(told: Mapping[str, Any], tree: bytes, dataset_version: str = "") -> dict[str, Any]:
    return {
        "step": told["step"],
        "rank": told["rank"],
        "world_size": told["world_size"],
        "kind": "full",
        "restore_ns": 0,
        "dataset_version": dataset_version,
        "tree": tree,
        "loader_state": b"",
    }
