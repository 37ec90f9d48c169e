#!/usr/bin/env python3
"""Makes the small TFRecords in tfrecord/, and what a reader must find in them.

Writer and reader: TensorFlow (pip install tensorflow-cpu). `tfrecord/expected.txt` has one line a
value: key, field, type, shape, bytes as hex, taken from what tf.data.TFRecordDataset and
tf.train.Example give back.

Run it again with:  python3 make_tfrecord.py
"""

import pathlib
import shutil

import numpy as np
import tensorflow as tf

OUT = pathlib.Path(__file__).resolve().parent / "tfrecord"


def of_bytes(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def of_floats(*values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def of_ints(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(i):
    pixels = np.random.default_rng(i).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    features = {
        "image/encoded": of_bytes(tf.io.encode_jpeg(pixels).numpy()),
        "image/format": of_bytes(b"jpeg"),
        "image/class/label": of_ints(i % 3),
        "boxes": of_floats(*np.linspace(0, 1, 4 * (i % 4), dtype=np.float32)),
        "names": of_bytes(*[b"name %d" % k for k in range(i % 4)]),
        "tokens": of_ints(*[(-3) ** k for k in range(i * 5)]),
        "edges": of_ints(0, -1, 2**63 - 1, -(2**63), 127, 128),
        "weird": of_floats(float("inf"), -0.0, 1e-45, 3.5),
        "empty": of_bytes(b""),
        "nothing": tf.train.Feature(),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def values_of(name, feature):
    """Field, type, shape and bytes of what a feature gives."""
    kind = feature.WhichOneof("kind")
    if kind == "int64_list":
        array = np.array(feature.int64_list.value, np.int64)
    elif kind == "float_list":
        array = np.array(feature.float_list.value, np.float32)
    elif kind == "bytes_list":
        for k, value in enumerate(feature.bytes_list.value):
            yield f"{name}[{k}]" if k else name, "bytes", "-", value
        return
    else:
        return
    yield name, array.dtype.str, str(len(array)), array.tobytes()


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    lines = []
    for shard in range(2):
        path = OUT / f"small.tfrecord-{shard:05}-of-00002"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for i in range(4):
                writer.write(example(4 * shard + i))
        for number, record in enumerate(tf.data.TFRecordDataset([str(path)])):
            message = tf.train.Example.FromString(record.numpy())
            for name, feature in message.features.feature.items():
                for field, kind, shape, data in values_of(name, feature):
                    key = f"{path.name}/{number:08}"
                    lines.append(f"{key} {field} {kind} {shape} {data.hex() or '-'}")
    (OUT / "expected.txt").write_text("\n".join(sorted(lines)) + "\n")
    for kind in ("GZIP", "ZLIB"):
        with tf.io.TFRecordWriter(str(OUT / f"{kind.lower()}.packed"), options=kind) as writer:
            writer.write(example(1))


if __name__ == "__main__":
    main()
