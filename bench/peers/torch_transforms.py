"""The training transforms of the peers that leave them to torchvision.

Images stay uint8 until after the flip, as torchvision's authors advise.
"""

from __future__ import annotations

import io

import torch
from PIL import Image
from protocol import IMAGENET_MEAN, IMAGENET_STD, SIZE
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional


class CenterSquare:
    """The fixed crop of the check: the largest square in the middle, resized."""

    def __call__(self, image):
        height, width = functional.get_size(image)
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        return functional.resized_crop(image, top, left, side, side, [SIZE, SIZE], antialias=True)


def transforms(dtype: str, is_check: bool, from_pillow: bool) -> v2.Compose:
    """RandomResizedCrop, flip and normalize; for uint8 the normalization is left to the device."""
    steps = (
        [CenterSquare()]
        if is_check
        else [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()]
    )
    if from_pillow:
        steps.append(v2.PILToTensor())
    if dtype == "float32":
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return v2.Compose(steps)


class PillowDecode:
    """JPEG bytes to a transformed tensor by way of Pillow: the usual ImageNet recipe."""

    def __init__(self, dtype: str, is_check: bool) -> None:
        self._transforms = transforms(dtype, is_check, from_pillow=True)

    def __call__(self, data: bytes) -> torch.Tensor:
        return self._transforms(Image.open(io.BytesIO(data)).convert("RGB"))


class TorchvisionDecode:
    """JPEG bytes to a transformed tensor by way of torchvision.io."""

    def __init__(self, dtype: str, is_check: bool) -> None:
        self._transforms = transforms(dtype, is_check, from_pillow=False)

    def __call__(self, data: bytes) -> torch.Tensor:
        encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return self._transforms(decode_image(encoded, ImageReadMode.RGB))
