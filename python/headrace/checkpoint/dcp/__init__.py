"""PyTorch's distributed checkpointing (DCP) to and from a Headrace store.

::

    from headrace.checkpoint.dcp import HeadraceReader, HeadraceStager, HeadraceWriter

    writer = HeadraceWriter("/nvme/run7", keep=3)
    dcp.save(state, checkpoint_id="step-400", storage_writer=writer)
    future = dcp.async_save(state, checkpoint_id="step-500", storage_writer=writer)   # stages itself
    dcp.load(state, storage_reader=HeadraceReader("/nvme/run7"))                      # the newest

Planners stay as they are. What is saved here can be restored by ``Checkpointer`` and the other way
round. Needs PyTorch 2.4 or newer.
"""

from __future__ import annotations

from headrace.checkpoint.dcp.reader import HeadraceReader
from headrace.checkpoint.dcp.stager import HeadraceStager
from headrace.checkpoint.dcp.writer import HeadraceWriter

__all__ = ["HeadraceReader", "HeadraceStager", "HeadraceWriter"]
