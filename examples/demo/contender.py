"""One loader that is measured: it lives in a process of its own and does a pass when it is told to.

    contender.py headrace DATASET | pytorch FOLDER   --batch-size N --image-size N --parallel N

Reads lines of JSON, {"rate": images/s or null}, and answers each with a line of figures. With a rate the
consumer sleeps for the time in which an accelerator of that speed would compute: a training step on
these processors would hide the loader's stalls behind its own work. The two contenders decode the same
files to the same size and make the same random choices (crop of 8 to 100 % of the area, flip).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "peers"))
from accounting import tree_cpu_seconds

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
PREFETCHED_BATCHES = 4  # for both; PyTorch's default with two workers

OpenPass = Callable[[], Iterator[tuple[torch.Tensor, torch.Tensor]]]


def headrace_passes(args: argparse.Namespace) -> OpenPass:
    import headrace
    from headrace import transforms as T

    dataset = headrace.open(args.path)
    batch_bytes = args.batch_size * 3 * args.image_size**2 * 4

    def one_pass() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        with dataset.loader(
            batch_size=args.batch_size,
            threads=args.parallel,
            memory_bytes=PREFETCHED_BATCHES * batch_bytes + (16 << 20),
            transforms={"jpg": T.imagenet_train(args.image_size), "cls": T.label()},
        ) as loader:
            for batch in loader:
                yield batch["jpg"], batch["cls"]

    return one_pass


class PhotographFolder(torch.utils.data.Dataset):
    """A folder of JPEGs in class sub-folders: Pillow decodes, crops and resizes, PyTorch normalizes.

    The resize goes from the crop straight to the result (box=), in one pass over uint8 pixels.
    """

    def __init__(self, root: str, size: int) -> None:
        folders = sorted(entry.path for entry in os.scandir(root) if entry.is_dir())
        self._files = [
            (e.path, label) for label, folder in enumerate(folders) for e in os.scandir(folder)
        ]
        self._size = size
        scale = torch.tensor(STD).view(3, 1, 1)
        self._factor = 1 / (255 * scale)
        self._offset = -torch.tensor(MEAN).view(3, 1, 1) / scale

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self._files[index]
        with Image.open(path) as file:
            image = file.convert("RGB")
        box = random_crop(image.width, image.height)
        pixels = np.array(image.resize((self._size, self._size), Image.BILINEAR, box=box))
        tensor = torch.from_numpy(pixels).permute(2, 0, 1)
        if torch.rand(()) < 0.5:
            tensor = tensor.flip(2)
        tensor = tensor.to(torch.float32, memory_format=torch.contiguous_format)
        return tensor.mul_(self._factor).add_(self._offset), label


def random_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """RandomResizedCrop's box: up to ten tries, then the whole image at the nearest allowed ratio."""
    low, high = math.log(3 / 4), math.log(4 / 3)
    for area, log_ratio in torch.rand(10, 2).tolist():
        target = width * height * (0.08 + 0.92 * area)
        ratio = math.exp(low + (high - low) * log_ratio)
        w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            left = int(torch.randint(0, width - w + 1, ()))
            top = int(torch.randint(0, height - h + 1, ()))
            return left, top, left + w, top + h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def pytorch_passes(args: argparse.Namespace) -> OpenPass:
    loader = torch.utils.data.DataLoader(
        PhotographFolder(args.path, args.image_size),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.parallel,
        prefetch_factor=PREFETCHED_BATCHES // args.parallel or 1,
        persistent_workers=True,
    )
    return lambda: iter(loader)


def measure(open_pass: OpenPass, rate: float | None) -> dict:
    """One pass over all images; returns its figures. Times are seconds since the pass began."""
    images, waited, computed, stalls = 0, 0.0, 0.0, []
    cpu_before = tree_cpu_seconds()
    began = time.perf_counter()
    asked = began
    for pictures, _labels in open_pass():
        came = time.perf_counter()
        images += len(pictures)
        if rate is not None:
            time.sleep(max(0.0, came + len(pictures) / rate - time.perf_counter()))
        done = time.perf_counter()
        waited, computed = waited + came - asked, computed + done - came
        stalls.append((done - began, came - asked, done - came))
        asked = done
    seconds = time.perf_counter() - began
    return {
        "images": images,
        "seconds": seconds,
        "cpu_seconds": tree_cpu_seconds() - cpu_before,
        "stall": waited / (waited + computed),
        "batches": stalls,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("loader", choices=("headrace", "pytorch"))
    parser.add_argument("path")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--image-size", type=int, required=True)
    parser.add_argument("--parallel", type=int, required=True, help="threads or workers")
    args = parser.parse_args()
    torch.set_num_threads(1)
    open_pass = {"headrace": headrace_passes, "pytorch": pytorch_passes}[args.loader](args)
    for line in sys.stdin:
        print(json.dumps(measure(open_pass, json.loads(line)["rate"])), flush=True)


if __name__ == "__main__":
    main()
