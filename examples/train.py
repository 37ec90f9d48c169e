#!/usr/bin/env python3
"""Train a small image classifier with PyTorch DDP and Headrace. Stop it anywhere, start it again.

    headrace pack photos/ photos.hr
    torchrun --standalone --nproc-per-node 2 train.py photos.hr --checkpoint run.pt

The checkpoint holds the model, the optimizer and the loader's state: a handful of integers that are
the same on every rank. Start it again with any number of processes, and training goes on with the
very next sample of the same order.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import headrace
from headrace import transforms as T


def small_cnn(num_classes: int) -> nn.Sequential:
    """Four strided convolutions. GroupNorm, so that no statistic depends on how ranks share a batch."""
    layers: list[nn.Module] = []
    channels = [3, 24, 48, 96, 128]
    for fan_in, fan_out in itertools.pairwise(channels):
        layers.append(nn.Conv2d(fan_in, fan_out, 3, stride=2, padding=1))
        layers += [nn.GroupNorm(8, fan_out), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], num_classes)]
    return nn.Sequential(*layers)


def save(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, loader: headrace.Loader
) -> None:
    """Write the checkpoint beside its name and rename it: a kill leaves the old one or the new one."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "loader": loader.state_dict(),
    }
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def train(args: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(small_cnn(args.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9)

    loader = headrace.open(args.dataset).loader(
        global_batch_size=args.global_batch_size,
        seed=args.seed,
        transforms={"jpg": T.imagenet_train(args.image_size), "cls": T.label()},
    )
    if args.checkpoint.exists():
        checkpoint = torch.load(args.checkpoint, weights_only=True)
        model.module.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader.load_state_dict(checkpoint["loader"])

    start = loader.state_dict()
    first_batch = start["next_position"] // args.global_batch_size
    with Journal(args.journal, rank, world) as journal, loader:
        for epoch in range(start["epoch"], args.epochs):
            for number, batch in enumerate(loader, first_batch):
                loss_sum = F.cross_entropy(model(batch["jpg"]), batch["cls"], reduction="sum")
                optimizer.zero_grad()
                # DDP takes the mean over ranks; so this gives the mean over the global batch's samples.
                (loss_sum * world / args.global_batch_size).backward()
                optimizer.step()
                journal.write(epoch, number, batch["__key__"], loss_sum.item(), loader.stats())
                if (number + 1) % args.checkpoint_every == 0:
                    dist.barrier()  # the journals of all ranks are there before the checkpoint is
                    if rank == 0:
                        save(args.checkpoint, model.module, optimizer, loader)
            first_batch = 0


class Journal:
    """What this rank trained on: one line of JSON a batch. Nothing is written without a folder."""

    def __init__(self, folder: Path | None, rank: int, world: int) -> None:
        self._ranks = {"rank": rank, "world": world}
        self._file = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(folder / f"rank-{rank}-of-{world}.jsonl", "a", buffering=1)

    def write(self, epoch: int, batch: int, keys: list[str], loss_sum: float, stats: dict) -> None:
        if self._file is not None:
            line = {
                "epoch": epoch,
                "batch": batch,
                **self._ranks,
                "keys": keys,
                "loss_sum": loss_sum,
            }
            line |= {"time": time.time(), "wait_seconds": stats["wait_seconds"]}
            self._file.write(json.dumps(line) + "\n")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("dataset", help="folder made by headrace pack, with the fields jpg and cls")
    parser.add_argument(
        "--checkpoint", type=Path, required=True, help="gone on from if it is there"
    )
    parser.add_argument(
        "--checkpoint-every", type=int, default=10, help="batches between checkpoints"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch-size", type=int, default=48, help="samples over all ranks")
    parser.add_argument("--image-size", type=int, default=96, help="pixels on a side")
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--learning-rate", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--journal", type=Path, help="folder for one JSONL file a rank")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    try:
        train(args)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # PyTorch's gloo threads outlive the process group and may still drop a Python object, which aborts
    # a Python that is ending. Everything is written and closed by now: leave without that ending.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
