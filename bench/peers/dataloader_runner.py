"""PyTorch's DataLoader over the folder of files.

dataloader-pillow        ImageFolder with its own Pillow loader: the usual recipe
dataloader-torchvision   ImageFolder with torchvision.io.decode_image as its loader
dataloader-files         raw: plain files read in Python
"""

from __future__ import annotations

from protocol import arguments, image_files, imports_done, measure_raw, measure_train, run


class FileBytes:
    """A map-style dataset of the bytes of files."""

    def __init__(self, files: list[tuple[str, int]]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> bytes:
        with open(self._files[index][0], "rb") as file:
            return file.read()


def train(args) -> None:
    from torch.utils.data import DataLoader
    from torch_transforms import transforms
    from torchvision.datasets import ImageFolder
    from torchvision.io import ImageReadMode, decode_image

    imports_done()
    if args.contender == "dataloader-pillow":
        dataset = ImageFolder(
            args.images, transform=transforms(args.dtype, args.is_check, from_pillow=True)
        )
    else:
        dataset = ImageFolder(
            args.images,
            transform=transforms(args.dtype, args.is_check, from_pillow=False),
            loader=lambda path: decode_image(path, ImageReadMode.RGB),
        )
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    measure_train(args, lambda number: iter(loader), len(dataset))


def raw(args) -> None:
    from torch.utils.data import DataLoader

    imports_done()
    dataset = FileBytes(image_files(args.images))
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        collate_fn=list,
    )
    measure_raw(args, lambda number: iter(loader), len(dataset))


if __name__ == "__main__":
    run(arguments(), {"train": train, "raw": raw})
