"""Who saves and restores, each at its authors' settings. Imports come when one is first used."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

State = dict[str, torch.Tensor]
Wait = Callable[[], object]


class Saver:
    """Saves to a folder and restores into tensors that exist. The folder is there and empty."""

    reads = ""  # whose files it restores, when not its own
    store = False  # many checkpoints lie in one folder, and steps tell them apart
    saves = restores = True

    def prepare(self) -> None:
        """Import and set up, before anything is timed."""

    def save(self, state: State, folder: Path, step: int) -> Wait | None:
        """Return when the training may go on; what is returned waits for the rest."""
        raise NotImplementedError

    def restore(self, folder: Path, into: State) -> None:
        """Fill the tensors."""
        raise NotImplementedError

    def close(self) -> None:
        """End what runs in the background."""


def copy_into(found: State, into: State) -> None:
    """What loaders that make new tensors leave to the user."""
    for name, tensor in into.items():
        tensor.copy_(found[name])


class Headrace(Saver):
    """The checkpointer that all saves of a run share. Durable is what its own wait says."""

    store = True

    def prepare(self) -> None:
        from headrace.checkpoint import Checkpointer

        self._make = Checkpointer
        self._open: dict[Path, Any] = {}

    def _of(self, folder: Path) -> Any:
        if folder not in self._open:
            self._open[folder] = self._make(folder, keep=1)
        return self._open[folder]

    def save(self, state: State, folder: Path, step: int) -> Wait:
        handle = self._of(folder).save(step, state)
        return lambda: handle.wait("local")

    def tidy(self, folder: Path) -> None:
        """Remove the checkpoint before: not part of a save."""
        self._of(folder).prune()

    def take_memory(self, state: State, folder: Path) -> None:
        """Take the arena, as a program does before it trains."""
        self._of(folder).prepare(state)

    def restore(self, folder: Path, into: State) -> None:
        self._of(folder).restore(into=into)

    def close(self) -> None:
        for checkpointer in self._open.values():
            checkpointer.close()
        self._open = {}


class Copy(Saver):
    """The limit of a stall: a copy into memory that is there, by one thread."""

    restores = False

    def save(self, state: State, folder: Path, step: int) -> None:
        if not hasattr(self, "_into"):
            self._into = {name: torch.ones_like(tensor) for name, tensor in state.items()}
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        copy_into(state, self._into)
        torch.set_num_threads(threads)


class TorchSave(Saver):
    mapped = False

    def save(self, state: State, folder: Path, step: int) -> None:
        torch.save(state, folder / "state.pt")

    def restore(self, folder: Path, into: State) -> None:
        copy_into(torch.load(folder / "state.pt", mmap=self.mapped, weights_only=True), into)


class TorchMapped(TorchSave):
    reads = "torch.save"
    saves = False
    mapped = True


class Safetensors(Saver):
    def prepare(self) -> None:
        import safetensors.torch

        self._module = safetensors

    def save(self, state: State, folder: Path, step: int) -> None:
        self._module.torch.save_file(state, folder / "state.safetensors")

    def restore(self, folder: Path, into: State) -> None:
        with self._module.safe_open(folder / "state.safetensors", framework="pt") as file:
            for name, tensor in into.items():
                tensor.copy_(file.get_tensor(name))


class FastSafetensors(Saver):
    reads = "safetensors"
    saves = False

    def prepare(self) -> None:
        from fastsafetensors import SafeTensorsFileLoader

        self._loader = SafeTensorsFileLoader

    def restore(self, folder: Path, into: State) -> None:
        loader = self._loader(None, "cpu", nogds=True, max_threads=16)
        loader.add_filenames({0: [str(folder / "state.safetensors")]})
        buffers = loader.copy_files_to_device()
        for name, tensor in into.items():
            tensor.copy_(buffers.get_tensor(name))
        buffers.close()
        loader.close()


class RunaiStreamer(Saver):
    reads = "safetensors"
    saves = False

    def prepare(self) -> None:
        from runai_model_streamer import SafetensorsStreamer

        self._streamer = SafetensorsStreamer

    def restore(self, folder: Path, into: State) -> None:
        with self._streamer() as streamer:
            streamer.stream_file(str(folder / "state.safetensors"))
            for name, tensor in streamer.get_tensors():
                into[name].copy_(tensor)


class Dcp(Saver):
    """PyTorch's distributed checkpoint, saved at once."""

    threads = 1

    def prepare(self) -> None:
        import torch.distributed.checkpoint as dcp

        self._dcp = dcp

    def save(self, state: State, folder: Path, step: int) -> Wait | None:
        writer = self._dcp.FileSystemWriter(folder, thread_count=self.threads)
        self._dcp.save(state, storage_writer=writer)
        return None

    def restore(self, folder: Path, into: State) -> None:
        self._dcp.load(into, checkpoint_id=folder)


class DcpThreads(Dcp):
    threads = 2


class DcpAsync(Dcp):
    """Saved by a thread; the state is staged anew for each save."""

    restores = False
    stager: Any = None

    def save(self, state: State, folder: Path, step: int) -> Wait:
        options = {"async_stager": self.stager} if self.stager else {}
        started = self._dcp.async_save(state, checkpoint_id=folder, **options)
        future = getattr(started, "upload_completion", started)
        return lambda: future.result()


class DcpAsyncKept(DcpAsync):
    """The stager and its memory are kept over all saves."""

    def prepare(self) -> None:
        super().prepare()
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        self.stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
        )


class DeepSpeedFast(TorchSave):
    """FastFileWriter under torch.save: direct, asynchronous writes from two halves of one buffer."""

    def prepare(self) -> None:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        # It builds its extension with the ninja of its environment.
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        import deepspeed.io.fast_file_writer as writer
        from deepspeed.ops.op_builder import AsyncIOBuilder

        class Bytes:
            """The one thing that the writer asks of an extension that the CPU's build lacks."""

            def load(self) -> Bytes:
                return self

            def cast_to_byte_tensor(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
                return [tensor.view(torch.uint8) for tensor in tensors]

        writer.UtilsBuilder = Bytes
        self._writer = writer
        self._handle = (
            AsyncIOBuilder()
            .load()
            .aio_handle(
                block_size=1 << 20,
                queue_depth=8,
                single_submit=False,
                overlap_events=True,
                intra_op_parallelism=1,
            )
        )
        self._buffer = self._handle.new_cpu_locked_tensor(
            128 << 20, torch.empty(0, dtype=torch.uint8)
        )
        self._buffer.zero_()

    def save(self, state: State, folder: Path, step: int) -> None:
        from deepspeed.io import FastFileWriter, FastFileWriterConfig

        config = FastFileWriterConfig(dnvme_handle=self._handle, pinned_tensor=self._buffer)
        file = FastFileWriter(str(folder / "state.pt"), config)
        torch.save(state, file, _use_new_zipfile_serialization=False)
        file.close()


SAVERS: dict[str, type[Saver]] = {
    "copy": Copy,
    "Headrace": Headrace,
    "torch.save": TorchSave,
    "torch.load mmap": TorchMapped,
    "safetensors": Safetensors,
    "fastsafetensors": FastSafetensors,
    "Run:ai streamer": RunaiStreamer,
    "DCP": Dcp,
    "DCP, 2 threads": DcpThreads,
    "DCP async": DcpAsync,
    "DCP async, kept stager": DcpAsyncKept,
    "DeepSpeed FastFileWriter": DeepSpeedFast,
}


def make(name: str) -> Saver:
    """The saver of that name, ready for use."""
    saver = SAVERS[name]()
    saver.prepare()
    return saver
