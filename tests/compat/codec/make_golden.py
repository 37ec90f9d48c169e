"""Makes the files of this folder: small images, and what Pillow and NumPy make of them.

Run with Pillow (12) and NumPy installed:  python make_golden.py
Writes the input files, one .npy of expected pixels for each case, and cases.json, which lists them:
    {"file": ..., "transform": description for CreateTransform, "expected": ..., "max_difference": n}
The expected pixels are Pillow's (uint8, NCHW or NHWC as the transform says). The versions that were
used stand in cases.json.
"""

import json
import pathlib
import struct
import zlib

import numpy as np
import PIL
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).parent
cases = []


def picture(width, height, seed=1):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(float)
    planes = [
        127 + 100 * np.sin(x / (3 + c) + seed) * np.cos(y / (5 - c)) + 25 * (x > width / 2)
        for c in range(3)
    ]
    noise = rng.integers(-12, 12, (height, width, 3))
    return Image.fromarray(np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8), "RGB")


def save(name, image, **options):
    image.save(HERE / name, **options)
    return name


def expect(file, name, pixels, ops, layout="NHWC", channels=3, max_difference=0):
    """Notes that the transform `ops` of `file` gives `pixels` (an array [h, w, c])."""
    pixels = np.asarray(pixels)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if layout == "NCHW":
        pixels = pixels.transpose(2, 0, 1)
    np.save(HERE / f"{name}.npy", np.ascontiguousarray(pixels))
    transform = {
        "type": "image",
        "dtype": "uint8",
        "layout": layout,
        "channels": channels,
        "ops": ops,
    }
    cases.append(
        {
            "file": file,
            "transform": transform,
            "expected": f"{name}.npy",
            "max_difference": max_difference,
        }
    )


def whole(file):
    """The whole decoded file, as Image.convert("RGB") gives it."""
    image = Image.open(HERE / file).convert("RGB")
    ops = [{"op": "center_crop", "size": [image.height, image.width]}]
    expect(file, file.replace(".", "_"), image, ops)


def jpegs():
    image = picture(45, 35)
    # 4:4:0 and 4:1:1 cannot be written with Pillow; jpeg_decoder_test.cc covers them.
    for sampling, name in ((0, "444"), (1, "422"), (2, "420")):
        whole(save(f"sampling_{name}.jpg", image, quality=88, subsampling=sampling))
    whole(save("progressive.jpg", image, quality=80, progressive=True))
    whole(save("restart.jpg", image, quality=80, restart_marker_blocks=2))
    whole(save("rgb_stored.jpg", image, quality=90, keep_rgb=True))
    whole(save("gray.jpg", image.convert("L"), quality=90))
    whole(save("gray_progressive.jpg", image.convert("L"), quality=90, progressive=True))
    # Pillow inverts CMYK both ways, and writes Adobe's marker.
    whole(save("cmyk.jpg", image.convert("CMYK"), quality=90))
    whole(save("one_pixel.jpg", picture(1, 1), quality=90))
    whole(save("thin.jpg", picture(3, 40), quality=90))


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(name, width, height, depth, color, rows, extra=b""):
    """Writes a PNG from bytes of rows, for kinds that Pillow does not write."""
    raw = b"".join(b"\0" + row for row in rows)
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    data = (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + extra
        + png_chunk(b"IDAT", zlib.compress(raw))
        + png_chunk(b"IEND", b"")
    )
    (HERE / name).write_bytes(data)
    return name


def pngs():
    image = picture(29, 23, seed=3)
    alpha = Image.fromarray(np.asarray(picture(29, 23, seed=4))[:, :, 0])
    whole(save("rgb.png", image))
    rgba = image.copy()
    rgba.putalpha(alpha)
    whole(save("rgba.png", rgba))
    whole(save("gray.png", image.convert("L")))
    la = Image.merge("LA", (image.convert("L"), alpha))
    whole(save("gray_alpha.png", la))
    whole(save("palette.png", image.quantize(50)))
    whole(save("palette_2bit.png", image.quantize(4), bits=2))
    whole(save("bilevel.png", image.convert("1")))
    whole(save("palette_transparent.png", image.quantize(20), transparency=3))
    rng = np.random.default_rng(5)
    for depth in (2, 4):
        rows = [
            bytes(rng.integers(0, 256, (21 * depth + 7) // 8, dtype=np.uint8)) for _ in range(9)
        ]
        whole(write_png(f"gray_{depth}bit.png", 21, 9, depth, 0, rows))
    # 16 bits: the high byte. (Pillow does that for RGB; its 16-bit grey clips instead, so NumPy here.)
    samples = rng.integers(0, 65536, (9, 11, 3), dtype=np.uint16)
    name = write_png(
        "rgb_16bit.png", 11, 9, 16, 2, [row.astype(">u2").tobytes() for row in samples]
    )
    expect(
        name,
        "rgb_16bit_png",
        (samples >> 8).astype(np.uint8),
        [{"op": "center_crop", "size": [9, 11]}],
    )
    name = write_png(
        "gray_16bit.png", 11, 9, 16, 0, [row.astype(">u2").tobytes() for row in samples[:, :, 0]]
    )
    high = (samples[:, :, :1] >> 8).astype(np.uint8).repeat(3, axis=2)
    expect(name, "gray_16bit_png", high, [{"op": "center_crop", "size": [9, 11]}])


def interlaced():
    """An Adam7 file, written by hand: Pillow reads interlaced files and does not write them."""
    pixels = np.asarray(picture(13, 11, seed=6))
    raw = b""
    for x0, y0, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        part = pixels[y0::dy, x0::dx]
        if part.size:
            raw += b"".join(b"\0" + row.tobytes() for row in part)
    header = struct.pack(">IIBBBBB", 13, 11, 8, 2, 0, 0, 1)
    data = (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", zlib.compress(raw))
        + png_chunk(b"IEND", b"")
    )
    (HERE / "interlaced.png").write_bytes(data)
    whole("interlaced.png")


def luma():
    """One channel: for YCbCr files libjpeg's luma plane, for others Image.convert("L")."""
    image = Image.open(HERE / "sampling_420.jpg")
    image.draft("L", image.size)
    expect(
        "sampling_420.jpg", "luma_420", image, [{"op": "center_crop", "size": [35, 45]}], channels=1
    )
    for file in ("rgb.png", "rgb_stored.jpg", "cmyk.jpg"):
        image = Image.open(HERE / file).convert("RGB").convert("L")
        ops = [{"op": "center_crop", "size": [image.height, image.width]}]
        expect(file, "luma_" + file.replace(".", "_"), image, ops, channels=1)


def center(image, height, width):
    left = round((image.width - width) / 2)
    top = round((image.height - height) / 2)
    if width > image.width or height > image.height:
        lr, tb = max(width - image.width, 0), max(height - image.height, 0)
        image = ImageOps.expand(image, (lr // 2, tb // 2, (lr + 1) // 2, (tb + 1) // 2), 0)
        return center(image, height, width)
    return image.crop((left, top, left + width, top + height))


def resizes():
    big = save("photo.jpg", picture(211, 157, seed=7), quality=85, subsampling=2)
    rgb = Image.open(HERE / big).convert("RGB")
    for h, w in ((32, 32), (157, 64), (20, 211), (300, 20), (7, 500), (1, 1)):
        resized = rgb.resize((w, h), Image.Resampling.BILINEAR)
        expect(big, f"resize_{h}x{w}", resized, [{"op": "resize", "size": [h, w]}], layout="NCHW")
    for side, h, w in ((64, 56, 56), (40, 33, 48), (180, 100, 101)):
        if rgb.width <= rgb.height:
            size = (side, int(side * rgb.height / rgb.width))
        else:
            size = (int(side * rgb.width / rgb.height), side)
        cropped = center(rgb.resize(size, Image.Resampling.BILINEAR), h, w)
        ops = [{"op": "resize", "short_side": side}, {"op": "center_crop", "size": [h, w]}]
        expect(big, f"short_side_{side}", cropped, ops)
    expect(
        "sampling_444.jpg",
        "center_pad",
        center(Image.open(HERE / "sampling_444.jpg"), 48, 31),
        [{"op": "center_crop", "size": [48, 31]}],
    )
    flipped = ImageOps.mirror(rgb.resize((50, 40), Image.Resampling.BILINEAR))
    expect(
        big,
        "flipped",
        flipped,
        [{"op": "resize", "size": [40, 50]}, {"op": "random_horizontal_flip", "p": 1}],
        layout="NCHW",
    )
    gray = Image.open(HERE / "gray.jpg").convert("RGB").resize((20, 16), Image.Resampling.BILINEAR)
    for layout in ("NCHW", "NHWC"):
        expect(
            "gray.jpg",
            f"resize_gray_{layout.lower()}",
            gray,
            [{"op": "resize", "size": [16, 20]}],
            layout=layout,
        )


def arrays():
    """.npy files for the label transform; their values are written down in label_transform_test.cc."""
    np.save(HERE / "scalar_i8.npy", np.array(-5, dtype=np.int8))
    np.save(HERE / "matrix_f4.npy", np.array([[0.5, -1.25, 3], [4, 5, 6e10]], dtype=np.float32))
    np.save(HERE / "vector_u2.npy", np.array([0, 300, 65535], dtype=np.uint16))
    np.save(HERE / "bools.npy", np.array([True, False]))
    np.save(HERE / "fortran.npy", np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)))
    np.save(HERE / "big_endian.npy", np.array([1, 2], dtype=">i4"))
    with open(HERE / "version_3.npy", "wb") as file:
        np.lib.format.write_array(file, np.array([1.5, 2.5]), version=(3, 0))
    with open(HERE / "version_2.npy", "wb") as file:
        np.lib.format.write_array(file, np.array([7, 8, 9], dtype=np.int64), version=(2, 0))


def main():
    jpegs()
    pngs()
    interlaced()
    luma()
    resizes()
    arrays()
    made_with = {"pillow": PIL.__version__, "numpy": np.__version__}
    (HERE / "cases.json").write_text(
        json.dumps({"made_with": made_with, "cases": cases}, indent=1) + "\n"
    )


main()
