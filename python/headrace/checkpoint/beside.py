"""The record of a run, kept beside its checkpoints: docs/formats/run-record.md."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headrace import _native, observe, run_record
from headrace.errors import HeadraceError

_log = logging.getLogger("headrace")


class RecordBeside:
    """The record of the run that a ``Checkpointer`` saves for, and those of the runs before it.

    What goes wrong here is logged and ends the record, never the run.

    Args:
        dest: where the checkpoints are.
        folders: of this node, before `dest`. Where `dest` is no folder the record is in the first one;
            without any there is none.
    """

    def __init__(self, dest: str, folders: Sequence[str]) -> None:
        homes = [place for place in (dest, *folders) if "://" not in place]
        self._home = str(Path(homes[0]).absolute()) if homes else ""
        self._folder = ""  # that this one has begun to record into

    def begin(self, epoch: int) -> None:
        """Record from now on, if a loader runs and nobody records yet. To be called at each save."""
        if not self._home or not observe.is_started():
            return
        folder = _native.run_record_folder(self._home, epoch)
        if folder == self._folder:
            return
        self.end()  # of an epoch that is over
        try:
            if run_record.start_beside(folder):
                self._folder = folder
        except HeadraceError as error:
            _log.warning("this run is not recorded: %s", error)
            self._home = ""

    def prune(self, entries: Callable[[], Sequence[dict[str, Any]]], epoch: int) -> None:
        """Remove the records of runs whose checkpoints are all gone. `epoch` is this run's own."""
        if not self._home or not Path(self._home, "records").is_dir():
            return
        try:
            epochs = sorted({int(entry["epoch"]) for entry in entries()})
            _native.prune_run_records(self._home, epochs, epoch)
        except HeadraceError as error:
            _log.warning("records of earlier runs stay in %s: %s", self._home, error)

    def end(self) -> None:
        """Take a last look, and record no more."""
        if self._folder:
            run_record.stop_beside(self._folder)
            self._folder = ""
