"""Fields that a Python function transforms, under the loader's policy for bad samples."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from headrace import _native
from headrace.errors import DataLossError, HeadraceError
from headrace.transforms import PythonTransform

Raw = dict[str, list[bytes | None]]


class PythonFields:
    """Applies Python transforms to the rows of a batch and collates the results."""

    def __init__(
        self, transforms: Mapping[str, PythonTransform], on_error: str, seed: int, output: str
    ) -> None:
        self._transforms = dict(transforms)
        self._on_error = on_error
        self._seed = seed
        self._output = output

    def apply(self, loader: _native.Loader, batch: _native.Batch, raw: Raw) -> dict[str, Any]:
        """Return the batch's byte fields, those with a transform replaced by its collated results.

        Rows whose transform raises follow the policy: ``raise`` raises DataLossError from it,
        ``skip`` drops the row from every field, ``replace`` puts substitutes in.
        """
        names = list(raw)
        rows = [{name: raw[name][r] for name in names} for r in range(batch.num_rows)]
        results: list[dict[str, Any]] = []
        dropped: list[int] = []
        for r, row in enumerate(rows):
            result = self._row(loader, batch, r, row)
            if result is None:
                dropped.append(r)
            else:
                results.append(result)
        if dropped:
            loader.drop_rows(batch, dropped)
        return {
            name: collate([result[name] for result in results], self._output)
            if name in self._transforms
            else [result[name] for result in results]
            for name in names
        }

    def _row(
        self, loader: _native.Loader, batch: _native.Batch, r: int, row: dict[str, Any]
    ) -> dict[str, Any] | None:
        while True:
            field, error = "", None
            result = dict(row)
            for field, transform in self._transforms.items():
                try:
                    result[field] = self._call(transform, row[field], batch, r)
                except Exception as raised:
                    error = raised
                    break
            if error is None:
                return result
            reason = f"the transform of field {field!r} raised {type(error).__name__}: {error}"
            if self._on_error == "raise":
                raise self._placed(loader, batch, r, reason, field) from error
            if self._on_error == "skip":
                loader.book_skipped(batch, r, reason, field)
                return None
            loader.substitute(batch, r, reason, field)
            row = {name: batch.values(v)[r] for v, name in enumerate(row)}

    def _placed(
        self, loader: _native.Loader, batch: _native.Batch, r: int, reason: str, field: str
    ) -> DataLossError:
        """Book the bad row; return the error that says where it lies."""
        try:
            loader.substitute(batch, r, reason, field)
        except HeadraceError as fault:
            return DataLossError(
                reason, shard=fault.shard, offset=fault.offset, key=fault.key, field=field
            )
        return DataLossError(reason, key=batch.keys()[r], field=field)

    def _call(
        self, transform: PythonTransform, data: bytes | None, batch: _native.Batch, r: int
    ) -> Any:
        if not transform.seeded:
            return transform.function(data)
        import random

        # A string seed goes through SHA-512: the same generator in every process and version.
        rng = random.Random(f"{self._seed}/{batch.epoch}/{batch.ids()[r]}")
        return transform.function(data, rng)


def collate(values: list[Any], output: str = "auto") -> Any:
    """Stack tensors, arrays and numbers of equal shape; give anything else as a list.

    Args:
        values: results of a transform, one a row.
        output: as of the Loader: arrays and numbers become NumPy arrays for ``"numpy"``, else
            PyTorch tensors when PyTorch has been imported. Tensors stay tensors.
    """
    first: Any = values[0] if values else None
    torch = sys.modules.get("torch")
    if torch is not None and all(isinstance(v, torch.Tensor) for v in values) and values:
        same = all(v.shape == first.shape for v in values)
        return torch.stack(values) if same else values
    if output == "numpy":
        import numpy

        torch = None
    if isinstance(first, (int, float)) and all(type(v) is type(first) for v in values):
        if output == "numpy":
            return numpy.array(values)
        return torch.tensor(values) if torch is not None else values
    np = sys.modules.get("numpy")
    if np is not None and all(isinstance(v, np.ndarray) for v in values) and values:
        same = all(v.shape == first.shape and v.dtype == first.dtype for v in values)
        if not same:
            return values
        stacked = np.stack(values)
        return torch.from_numpy(stacked) if torch is not None else stacked
    return values
