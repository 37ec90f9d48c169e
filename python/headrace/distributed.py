"""Which rank this process is, and how many threads it may use."""

from __future__ import annotations

import os
import sys

from headrace import _native
from headrace.errors import InvalidArgumentError

# Pairs of environment variables (rank, world size) in the order in which they are looked at.
_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_LOCAL_WORLD_VARIABLES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")


def rank_and_world(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return (rank, world size): the arguments, else torch.distributed, else the environment.

    Raises:
        InvalidArgumentError: only one of the two was given, or they make no sense.
    """
    if (rank is None) != (world_size is None):
        raise InvalidArgumentError("give both rank and world_size, or neither")
    if rank is None or world_size is None:
        rank, world_size = _from_torch() or _from_environment() or (0, 1)
    if world_size < 1 or not 0 <= rank < world_size:
        raise InvalidArgumentError(
            f"rank: expected 0 <= rank < world_size, found rank={rank}, world_size={world_size}"
        )
    return rank, world_size


def node_ranks() -> int:
    """Return how many ranks run on this node, as the environment says it; 1 where it does not."""
    local = next((os.environ[v] for v in _LOCAL_WORLD_VARIABLES if v in os.environ), "1")
    return int(local) if local.isdigit() and 0 < int(local) < 1 << 32 else 1


def default_threads() -> int:
    """Return the processors of this process divided by the ranks on this node, at least 1."""
    return max(1, _native.available_cpus() // node_ranks())


def _from_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_environment() -> tuple[int, int] | None:
    for rank_name, world_name in _RANK_VARIABLES:
        if rank_name in os.environ and world_name in os.environ:
            try:
                return int(os.environ[rank_name]), int(os.environ[world_name])
            except ValueError:
                raise InvalidArgumentError(
                    f"the environment has {rank_name}={os.environ[rank_name]!r} and "
                    f"{world_name}={os.environ[world_name]!r}: expected whole numbers"
                ) from None
    return None
