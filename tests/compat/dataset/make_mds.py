#!/usr/bin/env python3
"""Makes the small MDS datasets in mds/, and what a reader must find in them.

Writer and reader: MosaicML Streaming (pip install mosaicml-streaming). `mds/expected.txt` has one
line a value: dataset, key, field, type, shape, bytes as hex. The values are what the original reader
gives; of those that Headrace gives as they are stored (text, JSON, encoded images) the stored bytes
which it decodes.

Run it again with:  python3 make_mds.py
"""

import io
import json
import pathlib
import shutil

import numpy as np
from PIL import Image
from streaming import MDSWriter
from streaming.base.format.mds import reader as mds_reader

OUT = pathlib.Path(__file__).resolve().parent / "mds"
STORED = (
    {"bytes", "str", "json", "jpeg", "png", "str_int", "str_float", "str_decimal", "jpeg_array"}
    | {"jpegarray", "list[jpeg]", "list[png]", "list[pil]"}
)  # fmt: skip


def image(mode, size, seed):
    channels = len(Image.new(mode, (1, 1)).getbands())
    shape = (size[1], size[0], channels) if channels > 1 else (size[1], size[0])
    pixels = np.random.default_rng(seed).integers(0, 256, shape)
    if mode in ("I", "F"):
        return Image.fromarray(pixels.astype(np.int32 if mode == "I" else np.float32))
    return Image.frombytes(mode, size, pixels.astype(np.uint8).tobytes())


def jpeg_bytes(seed):
    out = io.BytesIO()
    image("RGB", (8, 6), seed).save(out, format="JPEG")
    return out.getvalue()


def every_encoding():
    """Columns of all encodings but pickles, and some samples."""
    columns = {
        "bytes": "bytes",
        "str": "str",
        "json": "json",
        "int": "int",
        "jpeg": "jpeg",
        "png": "png",
        "str_int": "str_int",
        "str_float": "str_float",
        "str_decimal": "str_decimal",
        "jpeg_array": "jpeg_array",
        "list_png": "list[png]",
        "pil": "pil",
        "nd": "ndarray",
        "nd_f32": "ndarray:float32",
        "nd_i16_2x3": "ndarray:int16:2,3",
    }
    numbers = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
    numbers += ["float16", "float32", "float64"]
    columns |= {name: name for name in numbers}
    from decimal import Decimal

    samples = []
    for i in range(6):
        sample = {
            "bytes": bytes(range(i * 7)),
            "str": "gr\u00fc\u00dfe " * i,
            "json": {"i": i, "list": [1, 2.5, None]},
            "int": -i,
            "jpeg": Image.open(io.BytesIO(jpeg_bytes(i))),
            "png": image("RGBA" if i % 2 else "L", (5, 4), i),
            "str_int": 10**i,
            "str_float": i / 3,
            "str_decimal": Decimal(i) / 8,
            "jpeg_array": [jpeg_bytes(i), jpeg_bytes(i + 1)],
            "list_png": [image("L", (3, 2), i + k) for k in range(i % 3)],
            "pil": image(["L", "RGB", "RGBA", "I", "F", "CMYK"][i], (3, 2), i),
            "nd": np.arange(2 * (i + 1), dtype=numbers[i % 11]).reshape(i + 1, 2),
            "nd_f32": np.full((300, 1) if i == 5 else (i + 1,), i + 0.5, np.float32),
            "nd_i16_2x3": np.arange(6, dtype=np.int16).reshape(2, 3) - i,
        }
        sample |= {name: np.dtype(name).type(100 - i) for name in numbers}
        samples.append(sample)
    return columns, samples


def write(name, columns, samples, **settings):
    with MDSWriter(out=str(OUT / name), columns=columns, **settings) as writer:
        for sample in samples:
            writer.write(sample)


def canonical(value):
    """Type, shape and bytes of a value."""
    if isinstance(value, Image.Image):
        value = np.asarray(value)
    if isinstance(value, bytes):
        return "bytes", "-", value
    if isinstance(value, int):
        value = np.int64(value)
    value = np.asarray(value)
    return value.dtype.str, ",".join(map(str, value.shape)) or "()", value.tobytes()


def expected_lines(name):
    root = OUT / name
    lines = []
    for entry in json.loads((root / "index.json").read_text())["shards"]:
        reader = mds_reader.MDSReader.from_json(str(root), None, entry)
        raw = root / reader.raw_data.basename
        if reader.zip_data and not raw.exists():
            from streaming.base.compression import decompress

            packed = (root / reader.zip_data.basename).read_bytes()
            raw.write_bytes(decompress(reader.compression, packed))
        for i in range(reader.samples):
            sample = reader.decode_sample(reader.get_sample_data(i))
            for field, value in sample.items():
                kind, shape, data = canonical(value)
                key = f"{reader.raw_data.basename}/{i:08}"
                lines.append(f"{name} {key} {field} {kind} {shape} {data.hex() or '-'}")
        if reader.zip_data:
            raw.unlink()
    return lines


def main():
    decode = mds_reader.mds_decode
    mds_reader.mds_decode = lambda encoding, data: (
        data if encoding in STORED else decode(encoding, data)
    )
    shutil.rmtree(OUT, ignore_errors=True)
    columns, samples = every_encoding()
    write("plain", columns, samples, hashes=["sha1", "xxh64"], size_limit=12_000)
    small = {"text": "str", "label": "int"}
    rows = [{"text": f"text {i} " * 20, "label": i} for i in range(20)]
    for algorithm in ("zstd", "zstd:19", "gz", "bz2:9", "br:5", "snappy"):
        name = algorithm.replace(":", "_")
        hashes = ["blake2b", "md5", "sha256", "xxh128", "xxh32", "xxh3_64"]
        write(name, small, rows, compression=algorithm, hashes=hashes, size_limit=1500)
    write("pickle", {"x": "pkl"}, [{"x": {"a": 1}}])
    lines = []
    for root in sorted(OUT.iterdir()):
        if root.name != "pickle":
            lines += expected_lines(root.name)
    (OUT / "expected.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
