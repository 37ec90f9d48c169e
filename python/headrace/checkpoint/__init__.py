"""Checkpoints that hardly stall, are published whole or not at all, and are checked when read.

::

    from headrace.checkpoint import Checkpointer

    with Checkpointer("/nvme/run7", keep=3) as checkpointer:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        checkpointer.save(step, state, loader=loader)     # returns once the state is copied
        ...
        state = checkpointer.restore(into=state)          # the newest one

PyTorch's own interface (``dcp.save``, ``dcp.async_save``, ``dcp.load``) is served by HeadraceWriter,
HeadraceReader and HeadraceStager, which are imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.checkpoint.checkpointer import Checkpointer
from headrace.checkpoint.handle import SaveHandle
from headrace.checkpoint.rng import rng_states, set_rng_states

if TYPE_CHECKING:
    from headrace.checkpoint.dcp import HeadraceReader, HeadraceStager, HeadraceWriter
    from headrace.checkpoint.torch_formats import (
        export_dcp,
        export_torch,
        import_dcp,
        import_torch,
    )

__all__ = [
    "Checkpointer",
    "HeadraceReader",
    "HeadraceStager",
    "HeadraceWriter",
    "SaveHandle",
    "export_dcp",
    "export_torch",
    "import_dcp",
    "import_torch",
    "rng_states",
    "set_rng_states",
]


def __getattr__(name: str) -> object:
    # Imported when first asked for: they need PyTorch, saving and restoring does not.
    if name in ("HeadraceReader", "HeadraceStager", "HeadraceWriter"):
        from headrace.checkpoint import dcp

        return getattr(dcp, name)
    if name in ("export_dcp", "export_torch", "import_dcp", "import_torch"):
        from headrace.checkpoint import torch_formats

        return getattr(torch_formats, name)
    raise AttributeError(f"module 'headrace.checkpoint' has no attribute {name!r}")
