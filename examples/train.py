#!/usr/bin/env python3
"""Train a small image classifier with PyTorch DDP and Headrace. Stop it anywhere, start it again.

    headrace pack photos/ photos.hr
    torchrun --standalone --nproc-per-node 2 train.py photos.hr --checkpoints run

A checkpoint holds the model, the optimizer and the loader's state: a handful of integers that are
the same on every rank. It is copied into the memory of a helper process, which outlives this one, and
goes to the folder behind the training's back. Start it again with any number of processes, and training
goes on with the very next sample of the same order.
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
from headrace.checkpoint import Checkpointer


def small_cnn(num_classes: int) -> nn.Sequential:
    """Four strided convolutions. GroupNorm, so that no statistic depends on how ranks share a batch."""
    layers: list[nn.Module] = []
    channels = [3, 24, 48, 96, 128]
    for fan_in, fan_out in itertools.pairwise(channels):
        layers.append(nn.Conv2d(fan_in, fan_out, 3, stride=2, padding=1))
        layers += [nn.GroupNorm(8, fan_out), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], num_classes)]
    return nn.Sequential(*layers)


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
    # Room for several states: while one is copied, the one before is there to be restored from.
    checkpointer = Checkpointer(args.checkpoints, tiers=["memory"], arena_bytes="16MiB", linger=120)
    journal = Journal(args.journal, rank, world)
    with checkpointer, journal, loader:

        def state() -> dict:
            return {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}

        if checkpointer.latest() is not None:
            restored = checkpointer.restore(loader=loader)
            model.module.load_state_dict(restored["model"])
            optimizer.load_state_dict(restored["optimizer"])
            journal.note(restored=checkpointer.restored)
        checkpointer.prepare(state())  # so that the first save is as fast as the others

        start = loader.state_dict()
        first_batch = start["next_position"] // args.global_batch_size
        for epoch in range(start["epoch"], args.epochs):
            for number, batch in enumerate(loader, first_batch):
                loss_sum = F.cross_entropy(model(batch["jpg"]), batch["cls"], reduction="sum")
                optimizer.zero_grad()
                # DDP takes the mean over ranks; so this gives the mean over the global batch's samples.
                (loss_sum * world / args.global_batch_size).backward()
                optimizer.step()
                journal.write(epoch, number, batch["__key__"], loss_sum.item(), loader.stats())
                if (number + 1) % args.checkpoint_every == 0:
                    # It counts once all ranks have handed it in; their journals are written by then.
                    step = epoch * len(loader) + number + 1
                    save = checkpointer.save(step, state(), loader=loader)
                    journal.note(saved=step, stall_seconds=save.stall_s)
            first_batch = 0


class Journal:
    """What this rank trained on, one line of JSON a batch, and what rank 0 saved and restored.

    Nothing is written without a folder.
    """

    def __init__(self, folder: Path | None, rank: int, world: int) -> None:
        self._ranks = {"rank": rank, "world": world}
        self._file = self._notes = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(folder / f"rank-{rank}-of-{world}.jsonl", "a", buffering=1)
            if rank == 0:
                self._notes = open(folder / "checkpoints.jsonl", "a", buffering=1)

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

    def note(self, **what: object) -> None:
        if self._notes is not None:
            self._notes.write(json.dumps(what) + "\n")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._file, self._notes):
            if file is not None:
                file.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("dataset", help="folder made by headrace pack, with the fields jpg and cls")
    parser.add_argument(
        "--checkpoints", type=Path, required=True, help="folder; gone on from what is there"
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
