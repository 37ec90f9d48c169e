"""Headrace feeds training jobs: exact sample order, exact resume, native threads.

Five lines::

    import headrace
    from headrace import transforms as T

    ds = headrace.open("photos.hr")
    loader = ds.loader(batch_size=64, transforms={"jpg": T.imagenet_train(224), "cls": T.label()})
    for batch in loader:
        train(batch["jpg"], batch["cls"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._native import __version__
from headrace.dataset import Dataset, open
from headrace.errors import (
    BudgetError,
    CancelledError,
    DataLossError,
    DeadlineError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    StateError,
)

if TYPE_CHECKING:
    from headrace import observe, run_record, transforms
    from headrace.loader import Loader
    from headrace.tensor import Tensor

__all__ = [
    "BudgetError",
    "CancelledError",
    "DataLossError",
    "Dataset",
    "DeadlineError",
    "HeadraceError",
    "InvalidArgumentError",
    "Loader",
    "NotFoundError",
    "StateError",
    "Tensor",
    "__version__",
    "observe",
    "open",
    "run_record",
    "transforms",
]


def __getattr__(name: str) -> object:
    # Imported when first asked for: opening a dataset and reading a sample needs none of them.
    import importlib

    homes = {"Loader": "headrace.loader", "Tensor": "headrace.tensor"}
    if name in homes:
        return getattr(importlib.import_module(homes[name]), name)
    if name in ("observe", "run_record", "transforms"):
        return importlib.import_module(f"headrace.{name}")
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
