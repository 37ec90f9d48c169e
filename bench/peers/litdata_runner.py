"""LitData: its own chunks of 64 MB.

litdata         images stored as JPEG, decoded by LitData through torchvision
litdata-bytes   images stored as bytes, for the raw work
"""

from __future__ import annotations

from protocol import (
    SEED,
    arguments,
    image_files,
    imports_done,
    make_small,
    measure_pack,
    measure_raw,
    measure_train,
    run,
    small_samples,
)
from remote import measure_epochs, measure_passes

SMALL_STEP = 1000  # small samples that one call of the packing function yields


def read_bytes(item: tuple[str, int]) -> dict:
    """A sample that LitData stores as bytes. At module level, since it goes to other processes."""
    path, label = item
    with open(path, "rb") as file:
        return {"image": file.read(), "label": label}


def read_jpeg(item: tuple[str, int]) -> dict:
    """A sample that LitData stores as JPEG, without encoding it again."""
    from PIL import Image

    path, label = item
    return {"image": Image.open(path), "label": label}


def read_small(item: tuple[int, int]):
    """The small samples of one step, of so many bytes."""
    step, size = item
    yield from small_samples(step * SMALL_STEP, (step + 1) * SMALL_STEP, size)


def train(args) -> None:
    import litdata
    from torch_transforms import transforms

    imports_done()
    transform = transforms(args.dtype, args.is_check, from_pillow=False)

    class Images(litdata.StreamingDataset):
        """Adds the transforms to LitData's dataset, as its documentation shows."""

        def __getitem__(self, index):
            sample = super().__getitem__(index)
            image = sample["image"]
            if image.shape[0] == 1:  # gray
                image = image.expand(3, -1, -1)
            return transform(image), sample["label"]

    dataset = Images(str(args.packed), shuffle=True, drop_last=False, seed=SEED)
    loader = litdata.StreamingDataLoader(
        dataset,
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    measure_train(args, lambda number: iter(loader), len(image_files(args.images)))


def raw(args) -> None:
    import litdata

    imports_done()
    dataset = litdata.StreamingDataset(str(args.packed), shuffle=True, drop_last=False, seed=SEED)
    expected = len(image_files(args.images))
    if args.workers == 0:
        measure_raw(args, lambda number: (sample["image"] for sample in dataset), expected)
        return
    loader = litdata.StreamingDataLoader(
        dataset,
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
        # It hands out memoryviews, which cannot be sent to another process.
        collate_fn=lambda samples: [bytes(sample["image"]) for sample in samples],
    )
    measure_raw(args, lambda number: iter(loader), expected)


def pack(args) -> None:
    import litdata

    imports_done()
    function = read_bytes if args.contender == "litdata-bytes" else read_jpeg

    def write(files, folder) -> None:
        litdata.optimize(
            fn=function,
            inputs=files,
            output_dir=str(folder),
            chunk_bytes="64MB",
            num_workers=max(args.workers, 1),
            verbose=False,
        )

    measure_pack(args, write)


def small(args) -> None:
    import litdata

    def write(count, folder) -> None:
        litdata.optimize(
            fn=read_small,
            inputs=[(step, args.sample_bytes) for step in range(count // SMALL_STEP)],
            output_dir=str(folder),
            chunk_bytes="64MB",
            num_workers=1,
            verbose=False,
            keep_data_ordered=True,
        )

    make_small(args, write)


def allow_http() -> None:
    """Let its fastest client, obstore, talk to a server without TLS; it has no setting for that."""
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True


def bucket(args) -> None:
    import litdata

    allow_http()
    imports_done()

    def one_pass(number: int, folder):
        dataset = litdata.StreamingDataset(
            args.url, cache_dir=str(folder), shuffle=True, drop_last=False, seed=SEED + number
        )
        yield from dataset

    measure_passes(args, one_pass)


def origin(args) -> None:
    import litdata

    allow_http()
    imports_done()
    dataset = litdata.StreamingDataset(
        args.url,
        cache_dir=str(args.cache),
        max_cache_size=args.cache_bytes,
        shuffle=True,
        drop_last=False,
        seed=SEED,
    )
    loader = litdata.StreamingDataLoader(
        dataset,
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        # It hands out memoryviews, which cannot be sent to another process.
        collate_fn=lambda samples: [bytes(sample) for sample in samples],
    )
    measure_epochs(args, lambda number: iter(loader))


if __name__ == "__main__":
    works = {"train": train, "raw": raw, "pack": pack, "small": small}
    run(arguments(), {**works, "bucket": bucket, "origin": origin})
