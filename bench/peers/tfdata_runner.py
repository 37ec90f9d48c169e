"""tf.data on TFRecord shards, with the fused decode-and-crop of the reference ResNet input pipelines.

Its bilinear resize does not antialias and its JPEG decoder uses the fast integer DCT: red and blue
come out about one gray level darker than with all the others.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

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
    measure_raw,
    measure_train,
    run,
    shuffled_shards,
    small_samples,
)

SHUFFLE_BUFFER = 1000  # samples


def records(tf, args):
    """The shuffled stream of serialized examples."""
    shards = sorted(tf.io.gfile.glob(str(args.packed / "*.tfrecord")))
    stream = tf.data.Dataset.from_tensor_slices(shards).shuffle(len(shards), seed=SEED)
    stream = stream.interleave(
        tf.data.TFRecordDataset,
        cycle_length=4,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    return stream.shuffle(SHUFFLE_BUFFER, seed=SEED)


def with_threads(tf, args, stream):
    """The stream on a pool of its own with --workers threads."""
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = max(args.workers, 1)
    options.threading.max_intra_op_parallelism = 1
    return stream.prefetch(tf.data.AUTOTUNE).with_options(options)


def crop_window(tf, shape, is_check: bool):
    """Top, left, height and width of the crop in an image of `shape`."""
    if is_check:
        side = tf.minimum(shape[0], shape[1])
        return tf.stack([(shape[0] - side) // 2, (shape[1] - side) // 2, side, side])
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape,
        tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4]),
        min_object_covered=0.1,
        aspect_ratio_range=[3 / 4, 4 / 3],
        area_range=[0.08, 1.0],
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    top, left, _ = tf.unstack(begin)
    height, width, _ = tf.unstack(size)
    return tf.stack([top, left, height, width])


def train(args) -> None:
    import numpy  # noqa: F401  counted as an import
    import tensorflow as tf

    imports_done()
    mean = tf.constant(IMAGENET_MEAN) * 255
    scale = 1 / (tf.constant(IMAGENET_STD) * 255)
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def decode(record):
        example = tf.io.parse_single_example(record, features)
        window = crop_window(tf, tf.io.extract_jpeg_shape(example["image"]), args.is_check)
        image = tf.image.decode_and_crop_jpeg(example["image"], window, channels=3)
        image = tf.image.resize(image, [SIZE, SIZE], "bilinear")
        if not args.is_check:
            image = tf.image.random_flip_left_right(image)
        image = (image - mean) * scale if args.dtype == "float32" else tf.cast(image, tf.uint8)
        return tf.transpose(image, [2, 0, 1]), example["label"]

    stream = records(tf, args).map(decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    stream = with_threads(tf, args, stream.batch(args.batch_size))
    measure_train(args, lambda number: stream.as_numpy_iterator(), len(image_files(args.images)))


def raw(args) -> None:
    import tensorflow as tf

    imports_done()
    features = {"image": tf.io.FixedLenFeature([], tf.string)}
    stream = records(tf, args).batch(args.batch_size)
    stream = stream.map(
        lambda batch: tf.io.parse_example(batch, features)["image"],
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    stream = with_threads(tf, args, stream)
    measure_raw(
        args,
        lambda number: (list(batch) for batch in stream.as_numpy_iterator()),
        len(image_files(args.images)),
    )


def pack(args) -> None:
    import tensorflow as tf

    imports_done()

    def serialized(data: bytes, label: int) -> bytes:
        image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))
        number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
        features = tf.train.Features(feature={"image": image, "label": number})
        return tf.train.Example(features=features).SerializeToString()

    def write(files, folder) -> None:
        def write_shards(shards) -> None:
            for number, members in shards:
                with tf.io.TFRecordWriter(str(folder / f"shard-{number:05d}.tfrecord")) as writer:
                    for path, label in members:
                        with open(path, "rb") as file:
                            writer.write(serialized(file.read(), label))

        in_processes(write_shards, shuffled_shards(files), args.workers)

    measure_pack(args, write)


def small(args) -> None:
    import tensorflow as tf

    def write(count, folder) -> None:
        with tf.io.TFRecordWriter(str(folder / "shard-00000.tfrecord")) as writer:
            for sample in small_samples(0, count):
                writer.write(sample)

    make_small(args, write)


if __name__ == "__main__":
    run(arguments(), {"train": train, "raw": raw, "pack": pack, "small": small})
