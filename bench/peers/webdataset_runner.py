"""WebDataset: tar shards, a shuffled list of shards and a shuffle buffer of 1,000 samples."""

from __future__ import annotations

from protocol import (
    SEED,
    arguments,
    image_files,
    imports_done,
    in_processes,
    measure_pack,
    measure_raw,
    measure_train,
    run,
    shuffled_shards,
)
from remote import measure_passes

SHUFFLE_BUFFER = 1000  # samples


def open_shards(args):
    """The shuffled stream of the packed samples."""
    import webdataset

    shards = sorted(map(str, args.packed.glob("*.tar")))
    stream = webdataset.WebDataset(
        shards, shardshuffle=100, detshuffle=False, seed=SEED, empty_check=False
    )
    return stream.shuffle(SHUFFLE_BUFFER)


def loader_of(args, stream):
    """The loader its documentation recommends: batches are made in the workers."""
    import webdataset

    return webdataset.WebLoader(
        stream, batch_size=None, num_workers=args.workers, persistent_workers=args.workers > 0
    )


def train(args) -> None:
    import webdataset  # noqa: F401  counted as an import
    from torch_transforms import TorchvisionDecode

    imports_done()
    stream = open_shards(args).to_tuple("jpg", "cls")
    stream = stream.map_tuple(TorchvisionDecode(args.dtype, args.is_check), int).batched(
        args.batch_size
    )
    loader = loader_of(args, stream)
    measure_train(args, lambda number: iter(loader), len(image_files(args.images)))


def raw(args) -> None:
    import webdataset  # noqa: F401  counted as an import

    imports_done()
    stream = open_shards(args).map(lambda sample: sample["jpg"])
    if args.workers > 0:
        stream = stream.batched(args.batch_size, collation_fn=list)
    loader = loader_of(args, stream)
    measure_raw(args, lambda number: iter(loader), len(image_files(args.images)))


def pack(args) -> None:
    import webdataset

    imports_done()

    def write(files, folder) -> None:
        def write_shards(shards) -> None:
            for number, members in shards:
                with webdataset.TarWriter(str(folder / f"shard-{number:05d}.tar")) as writer:
                    for rank, (path, label) in enumerate(members):
                        with open(path, "rb") as file:
                            key = f"{number:05d}{rank:05d}"
                            writer.write({"__key__": key, "jpg": file.read(), "cls": label})

        in_processes(write_shards, shuffled_shards(files), args.workers)

    measure_pack(args, write)


def bucket(args) -> None:
    """Streams through curl, its way of reading a URL; --url is a file of signed URLs, one a line."""
    import webdataset

    imports_done()
    with open(args.url) as file:
        urls = [f"pipe:curl -f -s '{url.strip()}'" for url in file]

    def one_pass(number: int, folder):
        stream = webdataset.WebDataset(
            urls, shardshuffle=len(urls), detshuffle=False, seed=SEED + number, empty_check=False
        )
        yield from stream.shuffle(SHUFFLE_BUFFER).map(lambda sample: sample["bin"])

    measure_passes(args, one_pass)


if __name__ == "__main__":
    run(arguments(), {"train": train, "raw": raw, "pack": pack, "bucket": bucket})
