"""Headrace as a data loader of DLIO: named in its configuration as reader.data_loader_classname.

What a batch is made of is what DLIO's own readers make: each sample is read whole, an npz is opened
and its array taken, the content of a TFRecord's feature is handed out as bytes; then DLIO trains on a
constant array in place of the decoded samples, and so it does here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy
from dlio_benchmark.common.enumerations import DataLoaderType, FormatType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from npz import npz_array

import headrace

INDEX_FOLDER = "headrace"  # below the data folder: made by `headrace index`
BATCHES_AHEAD = 3
LARGEST_OF_MEAN = 2.5  # samples of some workloads differ in size


class HeadraceLoader(BaseDataLoader):
    """One rank's batches, read by native threads ahead of the training."""

    def __init__(self, format_type, dataset_type, epoch_number) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.SYNTHETIC)
        self._loader: headrace.Loader | None = None

    def read(self) -> None:
        """Open the dataset and let the threads begin."""
        args = self._args
        is_npz = args.format is FormatType.NPZ
        field = "npz" if is_npz else "image"
        dataset = headrace.open(str(Path(args.data_folder) / INDEX_FOLDER), fields=[field])
        batch_bytes = args.record_length * LARGEST_OF_MEAN * args.batch_size
        self._field = field
        self._loader = dataset.loader(
            batch_size=args.batch_size,
            rank=args.my_rank,
            world_size=args.comm_size,
            seed=args.seed,
            threads=args.read_threads,
            memory_bytes=max(128 << 20, int(batch_bytes * BATCHES_AHEAD)),
        )

    def next(self) -> Iterator:
        """The batches of an epoch."""
        super().next()
        if self._loader is None:
            self.read()
        self._loader.set_epoch(self.epoch_number)
        constant = self._args.resized_image
        for batch in self._loader:
            samples = batch[self._field]
            if self._field == "npz":
                arrays = [npz_array(data, "x")[..., 0] for data in samples]
                yield numpy.stack([constant] * len(arrays))
            else:
                yield (constant,)
            del batch, samples
        self.epoch_number += 1

    def finalize(self) -> None:
        """The epoch is over."""
        if self._loader is not None:
            self._loader.close()
            self._loader = None
