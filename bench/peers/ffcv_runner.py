"""FFCV on the CPU.

It stores its own re-encoding of every image, at JPEG quality 90 as its authors do: it decodes fewer
bytes than the others, decodes whole images, and uses the fast integer DCT.
"""

from __future__ import annotations

from protocol import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    SEED,
    SIZE,
    arguments,
    image_files,
    imports_done,
    measure_pack,
    measure_train,
    run,
)

JPEG_QUALITY = 90


class Images:
    """The indexed dataset that FFCV's writer reads."""

    def __init__(self, files: list[tuple[str, int]]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int):
        from PIL import Image

        path, label = self._files[index]
        return Image.open(path).convert("RGB"), label


def image_pipeline(args) -> list:
    """Decode, crop, flip and normalize, as in its ImageNet example."""
    import numpy
    from ffcv.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

    if args.is_check:
        steps = [CenterCropRGBImageDecoder((SIZE, SIZE), ratio=1.0)]
    else:
        steps = [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip()]
    if args.dtype == "float32":
        mean, std = numpy.array(IMAGENET_MEAN) * 255, numpy.array(IMAGENET_STD) * 255
        steps.append(NormalizeImage(mean, std, numpy.float32))
    return [*steps, ToTensor(), ToTorchImage(channels_last=True)]


def train(args) -> None:
    from ffcv.fields.decoders import IntDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import Squeeze, ToTensor

    imports_done()
    loader = Loader(
        str(args.packed / "images.beton"),
        batch_size=args.batch_size,
        num_workers=args.workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        seed=SEED,
        pipelines={"image": image_pipeline(args), "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )
    measure_train(args, lambda number: iter(loader), len(image_files(args.images)))


def pack(args) -> None:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    imports_done()

    def write(files, folder) -> None:
        fields = {
            "image": RGBImageField(write_mode="jpg", jpeg_quality=JPEG_QUALITY),
            "label": IntField(),
        }
        writer = DatasetWriter(
            str(folder / "images.beton"), fields, num_workers=max(args.workers, 1)
        )
        writer.from_indexed_dataset(Images(files), shuffle_indices=True)

    measure_pack(args, write)


if __name__ == "__main__":
    run(arguments(), {"train": train, "pack": pack})
