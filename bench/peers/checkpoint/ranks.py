"""One rank that saves or restores a sharded state: bytes read when the number of ranks changes.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set: ranks.py VERB NAME --state small --folder F
Tensors are DTensors, cut in their first dimension. Rank 0 prints the result as a JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import savers
import states
import torch
import torch.distributed as distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard


def cut(tensor: torch.Tensor, mesh: Any) -> DTensor:
    """This rank's part of a tensor that all ranks have."""
    rank, world = distributed.get_rank(), distributed.get_world_size()
    rows = -(-tensor.shape[0] // world)
    part = tensor[min(rank * rows, len(tensor)) : min((rank + 1) * rows, len(tensor))].clone()
    return DTensor.from_local(
        part, mesh, [Shard(0)], run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


def bytes_read() -> int:
    """By this process so far: asked of the kernel, or of the disk where that is more (io_uring)."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return max(int(counts["rchar"]), int(counts["read_bytes"]))


def save(saver: savers.Saver, args: argparse.Namespace, mesh: Any) -> dict:
    state = {name: cut(tensor, mesh) for name, tensor in states.make(args.state).items()}
    wait = saver.save(state, args.folder, 1)
    if wait is not None:
        wait()
    return {}


def restore(saver: savers.Saver, args: argparse.Namespace, mesh: Any) -> dict:
    whole = states.make(args.state)
    into = {name: cut(torch.zeros_like(tensor), mesh) for name, tensor in whole.items()}
    distributed.barrier()
    before, start = bytes_read(), time.perf_counter()
    saver.restore(args.folder, into)
    mine = {
        "bytes": bytes_read() - before,
        "s": time.perf_counter() - start,
        "wrong": states.differing(
            {name: tensor.to_local() for name, tensor in into.items()},
            {name: cut(tensor, mesh).to_local() for name, tensor in whole.items()},
        ),
    }
    all_ranks: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(all_ranks, mine)
    return {
        "of_unique": sum(rank["bytes"] for rank in all_ranks) / states.size_of(args.state),
        "s": max(rank["s"] for rank in all_ranks),
        "wrong": sum(rank["wrong"] for rank in all_ranks),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("save", "restore"))
    parser.add_argument("name", choices=savers.SAVERS)
    parser.add_argument("--state", default="small")
    parser.add_argument("--folder", type=Path, required=True)
    args = parser.parse_args()
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    saver = savers.make(args.name)
    result = (save if args.verb == "save" else restore)(saver, args, mesh)
    saver.close()
    if distributed.get_rank() == 0:
        print(json.dumps({"result": result}), flush=True)
    distributed.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
