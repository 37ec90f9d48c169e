"""Grain on ArrayRecord files. Decoding is left to the user: here Pillow, one resize call, NumPy."""

from __future__ import annotations

import io
import itertools
import math

from protocol import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    SEED,
    SIZE,
    arguments,
    image_files,
    imports_done,
    in_processes,
    make_small,
    measure_pack,
    measure_train,
    run,
    shuffled_shards,
    small_samples,
)

LABEL_BYTES = 4
WRITER_OPTIONS = "group_size:1,uncompressed"  # what Grain asks for: one record a read


def random_box(width: int, height: int, generator) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a crop, drawn as torchvision does."""
    for _ in range(10):
        area = width * height * generator.uniform(0.08, 1.0)
        ratio = math.exp(generator.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left = int(generator.integers(0, width - w + 1))
            top = int(generator.integers(0, height - h + 1))
            return left, top, left + w, top + h
    return center_box(width, height)


def center_box(width: int, height: int) -> tuple[float, float, float, float]:
    """The largest square in the middle."""
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def decode_step(is_check: bool, dtype: str):
    """The random map of Grain that decodes a record; a check has nothing random in it."""
    import grain
    import numpy
    from PIL import Image

    scale = 1 / (255 * numpy.array(IMAGENET_STD, numpy.float32)).reshape(3, 1, 1)
    offset = 255 * numpy.array(IMAGENET_MEAN, numpy.float32).reshape(3, 1, 1) * scale

    class Decode(grain.transforms.RandomMap):
        def random_map(self, record: bytes, generator):
            label = int.from_bytes(record[:LABEL_BYTES], "little")
            image = Image.open(io.BytesIO(record[LABEL_BYTES:])).convert("RGB")
            box = center_box(*image.size) if is_check else random_box(*image.size, generator)
            image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
            pixels = numpy.asarray(image)
            if not is_check and generator.random() < 0.5:
                pixels = pixels[:, ::-1]
            pixels = pixels.transpose(2, 0, 1)
            if dtype == "float32":
                normalized = numpy.empty(pixels.shape, numpy.float32)
                numpy.multiply(pixels, scale, out=normalized)
                normalized -= offset
                return normalized, label
            return numpy.ascontiguousarray(pixels), label

    return Decode()


def train(args) -> None:
    import grain

    imports_done()
    paths = sorted(str(path) for path in args.packed.glob("*.array_record"))
    source = grain.sources.ArrayRecordDataSource(paths)
    step = decode_step(args.is_check, args.dtype)

    count = len(image_files(args.images))
    dataset = grain.MapDataset.source(source).seed(SEED).shuffle().random_map(step)
    # Repeated, with new draws for each pass, so that its processes outlive a pass.
    dataset = dataset.batch(args.batch_size).repeat()
    # One thread a process, since decoding in Python holds the lock; the processes do the work.
    stream = dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4))
    if args.workers:
        options = grain.MultiprocessingOptions(num_workers=args.workers, per_worker_buffer_size=2)
        stream = stream.mp_prefetch(options)
    batches = iter(stream)

    def epoch(number: int):
        return itertools.islice(batches, -(-count // args.batch_size))

    measure_train(args, epoch, count)


def pack(args) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    imports_done()

    def write(files, folder) -> None:
        def write_shards(shards) -> None:
            for number, members in shards:
                path = folder / f"shard-{number:05d}.array_record"
                writer = ArrayRecordWriter(str(path), WRITER_OPTIONS)
                for name, label in members:
                    with open(name, "rb") as file:
                        writer.write(label.to_bytes(LABEL_BYTES, "little") + file.read())
                writer.close()

        in_processes(write_shards, shuffled_shards(files), args.workers)

    measure_pack(args, write)


def small(args) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    def write(count, folder) -> None:
        writer = ArrayRecordWriter(str(folder / "shard-00000.array_record"), WRITER_OPTIONS)
        for sample in small_samples(0, count):
            writer.write(sample)
        writer.close()

    make_small(args, write)


if __name__ == "__main__":
    run(arguments(), {"train": train, "pack": pack, "small": small})
