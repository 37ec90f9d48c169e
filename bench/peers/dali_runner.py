"""NVIDIA DALI without a GPU, from the tar shards that WebDataset packs.

Its decoder draws the crop itself and decodes no more rows than the crop needs. The reader begins anew
where its data end, so the last batch of a timed pass is full, and all of it is counted.
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
    measure_train,
    run,
)

SHUFFLE_BUFFER = 1000  # samples


def pipeline(args):
    """Read, decode, crop, flip and normalize, as in its ImageNet example, with device_id None."""
    from nvidia.dali import fn, pipeline_def, types

    if args.dtype == "float32":
        output = {
            "mean": [255 * value for value in IMAGENET_MEAN],
            "std": [255 * value for value in IMAGENET_STD],
            "dtype": types.FLOAT,
        }
    else:
        output = {"dtype": types.UINT8}

    @pipeline_def(
        batch_size=args.batch_size,
        num_threads=max(args.workers, 1),
        device_id=None,
        seed=SEED,
        prefetch_queue_depth=2,
    )
    def steps():
        encoded, label = fn.readers.webdataset(
            paths=sorted(str(path) for path in args.packed.glob("*.tar")),
            ext=["jpg", "cls"],
            random_shuffle=True,
            initial_fill=SHUFFLE_BUFFER,
            pad_last_batch=args.is_check,
        )
        if args.is_check:
            image = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
            image = fn.resize(
                image, resize_shorter=SIZE, interp_type=types.INTERP_LINEAR, antialias=True
            )
            mirror = 0
        else:
            image = fn.decoders.image_random_crop(
                encoded,
                device="cpu",
                output_type=types.RGB,
                random_area=[0.08, 1.0],
                random_aspect_ratio=[3 / 4, 4 / 3],
                num_attempts=10,
            )
            image = fn.resize(
                image, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True
            )
            mirror = fn.random.coin_flip()
        image = fn.crop_mirror_normalize(
            image, output_layout="CHW", crop=(SIZE, SIZE), mirror=mirror, **output
        )
        return image, label

    built = steps()
    built.build()
    return built


def labels_of(texts) -> list[int]:
    """The labels of one batch, which the shards hold as text."""
    return [int(bytes(texts.at(position))) for position in range(len(texts))]


def train(args) -> None:
    import numpy  # noqa: F401  counted as an import
    import nvidia.dali.fn  # noqa: F401

    imports_done()
    count = len(image_files(args.images))
    built = pipeline(args)
    batches = -(-count // args.batch_size)

    def epoch(number: int):
        left = count
        for _ in range(batches):
            images, texts = built.run()
            # Padding repeats the last image: only a check, which compares sums, cuts it off.
            wanted = min(left, args.batch_size) if args.is_check else args.batch_size
            yield images.as_array()[:wanted], labels_of(texts)[:wanted]
            left -= wanted

    measure_train(args, epoch, count if args.is_check else batches * args.batch_size)


if __name__ == "__main__":
    run(arguments(), {"train": train})
