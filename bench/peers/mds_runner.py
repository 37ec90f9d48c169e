"""MosaicML Streaming: MDS shards of 64 MB with a bytes column, no compression and no hashes.

Images are decoded by torchvision: its own image columns go through Pillow, which is slower.
"""

from __future__ import annotations

from protocol import (
    SEED,
    arguments,
    image_files,
    imports_done,
    in_processes,
    make_small,
    measure_pack,
    measure_raw,
    measure_train,
    run,
    small_samples,
)
from remote import measure_epochs, measure_passes

SHARD_LIMIT = "64mb"
# Samples that are mixed with each other, of the epochs that keep: by default it is 262,144, all of
# these datasets, which no part of a dataset in a cache could serve.
SHUFFLE_BLOCK = 2000


def train(args) -> None:
    from streaming import StreamingDataLoader, StreamingDataset
    from torch_transforms import TorchvisionDecode

    imports_done()
    decode = TorchvisionDecode(args.dtype, args.is_check)

    class Images(StreamingDataset):
        """Adds the transforms to its dataset, as its documentation shows."""

        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return decode(sample["image"]), sample["label"]

    dataset = Images(
        local=str(args.packed),
        remote=None,
        shuffle=True,
        batch_size=args.batch_size,
        shuffle_seed=SEED,
    )
    loader = StreamingDataLoader(
        dataset,
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    measure_train(args, lambda number: iter(loader), len(image_files(args.images)))


def raw(args) -> None:
    from streaming import StreamingDataLoader, StreamingDataset

    imports_done()
    dataset = StreamingDataset(
        local=str(args.packed),
        remote=None,
        shuffle=True,
        batch_size=args.batch_size,
        shuffle_seed=SEED,
    )
    expected = len(image_files(args.images))
    if args.workers == 0:
        measure_raw(args, lambda number: (sample["image"] for sample in dataset), expected)
        return
    loader = StreamingDataLoader(
        dataset,
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
        collate_fn=lambda samples: [sample["image"] for sample in samples],
    )
    measure_raw(args, lambda number: iter(loader), expected)


def pack(args) -> None:
    from streaming import MDSWriter
    from streaming.base.util import merge_index

    imports_done()

    def write(files, folder) -> None:
        # Its documented way to pack in parallel: one writer a process, then one merged index.
        def write_part(parts) -> None:
            for name, members in parts:
                columns = {"image": "bytes", "label": "int"}
                out = str(folder / name) if args.workers > 1 else str(folder)
                with MDSWriter(out=out, columns=columns, size_limit=SHARD_LIMIT) as writer:
                    for path, label in members:
                        with open(path, "rb") as file:
                            writer.write({"image": file.read(), "label": label})

        count = max(args.workers, 1)
        in_processes(
            write_part, [(str(rank), files[rank::count]) for rank in range(count)], args.workers
        )
        if args.workers > 1:
            merge_index(str(folder), keep_local=True)

    measure_pack(args, write)


def small(args) -> None:
    from streaming import MDSWriter

    def write(count, folder) -> None:
        with MDSWriter(out=str(folder), columns={"bin": "bytes"}, size_limit=SHARD_LIMIT) as writer:
            for sample in small_samples(0, count, args.sample_bytes):
                writer.write({"bin": sample})

    make_small(args, write)


def bucket(args) -> None:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    imports_done()

    def one_pass(number: int, folder):
        clean_stale_shared_memory()  # of the process of the pass before
        dataset = StreamingDataset(
            remote=args.url,
            local=str(folder),
            shuffle=True,
            batch_size=args.batch_size,
            shuffle_seed=SEED + number,
        )
        for sample in dataset:
            yield sample["bin"]

    measure_passes(args, one_pass)


def origin(args) -> None:
    from streaming import StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    imports_done()
    clean_stale_shared_memory()  # of a run that was killed: it would be waited for
    dataset = StreamingDataset(
        remote=args.url,
        local=str(args.cache),
        cache_limit=args.cache_bytes,
        shuffle=True,
        batch_size=args.batch_size,
        shuffle_seed=SEED,
        shuffle_block_size=SHUFFLE_BLOCK,
    )
    loader = StreamingDataLoader(
        dataset,
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        collate_fn=lambda samples: [sample["bin"] for sample in samples],
    )
    measure_epochs(args, lambda number: iter(loader))


if __name__ == "__main__":
    works = {"train": train, "raw": raw, "pack": pack, "small": small}
    run(arguments(), {**works, "bucket": bucket, "origin": origin})
