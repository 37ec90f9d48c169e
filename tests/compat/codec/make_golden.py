"""Makes the files of this folder: small images, and what Pillow and NumPy make of them.

Run with Pillow (12), NumPy, cjpeg of libjpeg-turbo and cwebp of libwebp installed:  python make_golden.py
Writes the input files, one .npy of expected pixels for each case, and cases.json, which lists them:
    {"file": ..., "transform": description for CreateTransform, "expected": ..., "max_difference": n}
and, where something is drawn, "key": [seed, epoch, sample id].
The expected pixels are Pillow's (uint8, NCHW or NHWC as the transform says). The versions that were
used stand in cases.json.
"""

import io
import json
import pathlib
import struct
import subprocess
import zlib

import numpy as np
import PIL
from PIL import Image, ImageEnhance, ImageOps

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


def expect(
    file, name, pixels, ops, layout="NHWC", channels=3, max_difference=0, key=None, **members
):
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
        **members,
    }
    cases.append(
        {
            "file": file,
            "transform": transform,
            "expected": f"{name}.npy",
            "max_difference": max_difference,
            **({"key": key} if key else {}),
        }
    )


def whole(file):
    """The whole decoded file, as Image.convert("RGB") gives it."""
    image = ImageOps.exif_transpose(Image.open(HERE / file)).convert("RGB")
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


SAMPLINGS = {
    "440": "1x2,1x1,1x1",
    "411": "4x1,1x1,1x1",
    "1x4": "1x4,1x1,1x1",
    "410": "4x2,1x1,1x1",
    "3x1": "3x1,1x1,1x1",
    "3x2": "3x2,1x1,1x1",
    "chroma_larger": "1x1,2x2,2x1",
    "mixed": "2x2,2x1,1x2",
    "444_as_1x2": "1x2,1x2,1x2",
    "422_as_2x2": "2x2,1x2,1x2",
}


def samplings():
    """Samplings that Pillow does not write."""
    ppm = io.BytesIO()
    picture(77, 59, seed=8).save(ppm, "PPM")
    for name, sampling in SAMPLINGS.items():
        for options in (["-baseline"], ["-progressive"]):
            file = f"sampling_{name}{'' if options == ['-baseline'] else options[0]}.jpg"
            command = ["cjpeg", *options, "-quality", "92", "-sample", sampling]
            done = subprocess.run(command, input=ppm.getvalue(), stdout=subprocess.PIPE, check=True)
            (HERE / file).write_bytes(done.stdout)
            whole(file)


def segments(data):
    """The marker segments of a JPEG before its image data, and the rest."""
    at, parts = 2, []
    while data[at + 1] != 0xDA:
        length = 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
        parts.append(data[at : at + length])
        at += length
    return parts, data[at:]


def remade(name, source, change):
    """Writes a JPEG whose segments are those of `source` after `change`."""
    parts, rest = segments((HERE / source).read_bytes())
    (HERE / name).write_bytes(b"\xff\xd8" + b"".join(change(parts)) + rest)
    return name


def without(*markers):
    return lambda parts: [part for part in parts if part[1] not in markers]


def adobe(transform):
    segment = b"\xff\xee" + struct.pack(">H5sHHHB", 14, b"Adobe", 100, 0, 0, transform)
    return lambda parts: [segment, *without(0xE0, 0xEE)(parts)]


def with_ids(*ids):
    """Renames the components, in the frame and in the scan, and drops the markers that explain them."""

    def change(parts):
        out = []
        for part in without(0xE0, 0xEE)(parts):
            if part[1] in (0xC0, 0xC2):
                frame = bytearray(part)
                for i, one in enumerate(ids):
                    frame[10 + 3 * i] = one
                part = bytes(frame)
            out.append(part)
        return out

    return change


def colours():
    """Each way in which a JPEG says what its components are."""
    whole(remade("rgb_by_ids.jpg", "rgb_stored.jpg", without(0xEE)))
    whole(remade("rgb_by_adobe.jpg", "sampling_444.jpg", adobe(0)))
    whole(remade("ycc_by_adobe.jpg", "sampling_420.jpg", adobe(1)))
    whole(remade("ycc_by_default.jpg", "sampling_420.jpg", without(0xE0)))
    whole(remade("cmyk_without_adobe.jpg", "cmyk.jpg", without(0xEE)))
    whole(remade("ycck.jpg", "cmyk.jpg", adobe(2)))
    # The first component has the only odd name: libjpeg takes such a file for YCbCr.
    name = remade("ycc_odd_ids.jpg", "sampling_420.jpg", with_ids(0, 1, 2))
    data = (HERE / name).read_bytes()
    scan = data.index(b"\xff\xda")
    ids = bytes(data[:scan] + data[scan : scan + 5])
    for i in range(3):
        ids += bytes([i]) + data[scan + 6 + 2 * i : scan + 7 + 2 * i]
    (HERE / name).write_bytes(ids + data[scan + 11 :])
    whole(name)


def surroundings():
    """What cameras and programs put around the image."""
    image = picture(45, 35, seed=9)
    small = io.BytesIO()
    picture(16, 12, seed=10).save(small, "JPEG", quality=60)
    data = b"Exif\0\0" + exif(1) + small.getvalue()
    whole(save("thumbnail.jpg", image, quality=85, exif=data))
    whole(save("profile.jpg", image, quality=85, icc_profile=bytes(range(256)) * 300))
    first = (HERE / "thumbnail.jpg").read_bytes()
    (HERE / "two_images.jpg").write_bytes(first + (HERE / "sampling_422.jpg").read_bytes())
    whole("two_images.jpg")
    (HERE / "trailing.jpg").write_bytes(first + b"\0" * 7 + b"made by a camera\xff\xd8\xff")
    whole("trailing.jpg")


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(name, width, height, depth, color, rows, extra=b"", interlaced=False):
    """Writes a PNG from bytes of rows, for kinds that Pillow does not write."""
    raw = b"".join(b"\0" + row for row in rows)
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))
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


ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)


def packed(samples, depth):
    """Rows of an array [h, w, c] of samples, as PNG packs them."""
    if depth == 16:
        return [row.astype(">u2").tobytes() for row in samples]
    if depth == 8:
        return [row.astype(np.uint8).tobytes() for row in samples]
    bits = (samples[:, :, 0, None] >> np.arange(depth - 1, -1, -1)) & 1
    return [np.packbits(row.reshape(-1).astype(np.uint8)).tobytes() for row in bits]


def interlaced():
    """Adam7 files and rare kinds, written by hand: Pillow reads them and does not write them."""
    pixels = np.asarray(picture(13, 11, seed=6))
    rows = [r for x, y, dx, dy in ADAM7 for r in packed(pixels[y::dy, x::dx], 8) if r]
    whole(write_png("interlaced.png", 13, 11, 8, 2, rows, interlaced=True))
    rng = np.random.default_rng(16)
    for color, depths in (
        (0, (1, 2, 4, 8, 16)),
        (2, (8, 16)),
        (3, (1, 2, 4, 8)),
        (4, (8, 16)),
        (6, (8, 16)),
    ):
        channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
        kind = {0: "gray", 2: "rgb", 3: "palette", 4: "gray_alpha", 6: "rgba"}[color]
        for depth in depths:
            samples = rng.integers(0, 1 << depth, (13, 21, channels))
            extra = b""
            if color == 3:
                extra = png_chunk(
                    b"PLTE", rng.integers(0, 256, 3 << depth, dtype=np.uint8).tobytes()
                )
                if depth != 2:
                    extra += png_chunk(
                        b"tRNS", bytes(rng.integers(0, 256, 1 << depth, dtype=np.uint8))
                    )
            elif color in (0, 2) and depth != 2:
                extra = png_chunk(b"tRNS", struct.pack(f">{channels}H", *samples[0, 0]))
            for lace in (False, True):
                parts = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7] if lace else [samples]
                rows = [r for part in parts for r in packed(part, depth) if r]
                name = f"kind_{kind}_{depth}bit{'_interlaced' if lace else ''}.png"
                write_png(name, 21, 13, depth, color, rows, extra, interlaced=lace)
                if color == 0 and depth == 16:  # see pngs()
                    high = (samples >> 8).astype(np.uint8).repeat(3, axis=2)
                    expect(
                        name,
                        name.replace(".", "_"),
                        high,
                        [{"op": "center_crop", "size": [13, 21]}],
                    )
                else:
                    whole(name)


def exif(orientation, big=False, kind="H"):
    """Exif data with an Orientation tag between two others."""
    order = ">" if big else "<"
    head = (b"MM\0*" if big else b"II*\0") + struct.pack(order + "I", 8)
    value = struct.pack(order + kind, orientation).ljust(4, b"\0")
    entries = [
        struct.pack(order + "HHI", 0x0100, 4, 1) + struct.pack(order + "I", 7),
        struct.pack(order + "HHI", 0x0112, {"H": 3, "I": 4}[kind], 1) + value,
        struct.pack(order + "HHI", 0x0128, 3, 1) + struct.pack(order + "HH", 2, 0),
    ]
    return head + struct.pack(order + "H", 3) + b"".join(entries) + bytes(4)


def turned():
    """Each orientation in each container; crops and resizes count in the upright image."""
    image = picture(37, 26, seed=11)
    for o in range(1, 9):
        data = b"Exif\0\0" + exif(o, big=o % 2 == 0, kind="IH"[o % 2])
        whole(save(f"turned_{o}.jpg", image, quality=90, subsampling=2, exif=data))
    for o in (3, 6, 8):
        data = exif(o, big=o == 6)
        whole(save(f"turned_{o}.png", image, exif=data))
        whole(save(f"turned_{o}.webp", image, quality=70, exif=data))
    upright = ImageOps.exif_transpose(Image.open(HERE / "turned_6.jpg"))
    resized = upright.resize((19, 31), Image.Resampling.BILINEAR)
    expect("turned_6.jpg", "turned_resized", resized, [{"op": "resize", "size": [31, 19]}])
    cropped = center(upright.resize((20, 28), Image.Resampling.BILINEAR), 15, 13)
    ops = [{"op": "resize", "short_side": 20}, {"op": "center_crop", "size": [15, 13]}]
    expect("turned_6.jpg", "turned_cropped", cropped, ops)
    luma = Image.open(HERE / "turned_5.jpg")
    luma.draft("L", luma.size)
    ops = [{"op": "center_crop", "size": [37, 26]}]
    expect("turned_5.jpg", "turned_luma", ImageOps.exif_transpose(luma), ops, channels=1)
    ops = [{"op": "center_crop", "size": [26, 37]}]
    stored = Image.open(HERE / "turned_6.jpg").convert("RGB")
    expect("turned_6.jpg", "turned_not", stored, ops, exif_orientation="ignore")


def webps():
    image = picture(45, 35, seed=12)
    alpha = Image.fromarray(np.asarray(picture(45, 35, seed=13))[:, :, 0])
    rgba = image.copy()
    rgba.putalpha(alpha)
    whole(save("lossy.webp", image, quality=75))
    whole(save("lossy_alpha.webp", rgba, quality=60, alpha_quality=50))
    whole(save("lossless.webp", image, lossless=True))
    whole(save("lossless_alpha.webp", rgba, lossless=True, exact=True))
    whole(save("lossless_palette.webp", image.quantize(12).convert("RGB"), lossless=True))
    whole(save("one_pixel.webp", picture(1, 1), quality=75))
    whole(save("lossy_coarse.webp", picture(64, 49, seed=14), quality=1, method=0))
    command = ["cwebp", "-quiet", "-f", "70", "-nostrong", "-q", "30"]
    save("rgb_for_cwebp.png", picture(51, 66, seed=17))
    files = [HERE / "rgb_for_cwebp.png", "-o", HERE / "lossy_simple_filter.webp"]
    subprocess.run([*command, *files], check=True)
    (HERE / "rgb_for_cwebp.png").unlink()
    whole("lossy_simple_filter.webp")
    ops = [{"op": "resize", "size": [20, 30]}]
    resized = (
        Image.open(HERE / "lossy.webp").convert("RGB").resize((30, 20), Image.Resampling.BILINEAR)
    )
    expect("lossy.webp", "webp_resized", resized, ops)
    luma = Image.open(HERE / "lossy.webp").convert("RGB").convert("L")
    expect("lossy.webp", "webp_luma", luma, [{"op": "center_crop", "size": [35, 45]}], channels=1)
    save("animated.webp", image, save_all=True, append_images=[picture(45, 35, seed=15)])


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


MASK = (1 << 64) - 1


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


class KeyedRandom:
    """The draws, as docs/guide/transforms.md defines them."""

    def __init__(self, *words):
        self.state = 0
        for word in words:
            self.state = mix(
                (self.state + 0x9E3779B97F4A7C15 + mix((word + 0xD1B54A32D192ED03) & MASK)) & MASK
            )

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return mix(self.state)

    def next_double(self):
        return (self.next() >> 11) * 2.0**-53

    def next_below(self, bound):
        return (self.next() * bound) >> 64

    def uniform(self, low, high):
        return low + (high - low) * self.next_double()


def jitter(image, random, op):
    """torchvision's ColorJitter on a PIL image."""
    if not random.next_double() < op.get("p", 1):
        return image
    order = [0, 1, 2, 3]
    for i in (3, 2, 1):
        j = random.next_below(i + 1)
        order[i], order[j] = order[j], order[i]
    ranges = [op.get(name, [1, 1]) for name in ("brightness", "contrast", "saturation")]
    factors = [random.uniform(*pair) for pair in (*ranges, op.get("hue", [0, 0]))]
    for which in order:
        if which == 3:
            if image.mode == "L" or "hue" not in op:
                continue
            h, s, v = image.convert("HSV").split()
            shift = int(factors[3] * 255) & 255
            h = Image.fromarray(np.asarray(h) + np.uint8(shift))
            image = Image.merge("HSV", (h, s, v)).convert("RGB")
        else:
            kind = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[which]
            image = kind(image).enhance(factors[which])
    return image


def blur(image, random, op, exact):
    """torchvision's GaussianBlur, in floating point as there, or `exact` in integers."""
    if not random.next_double() < op.get("p", 1):
        return np.asarray(image)
    sigma = random.uniform(*op.get("sigma", [0.1, 2.0]))
    size = op["kernel_size"]
    half = size // 2
    values = [np.exp(-0.5 * ((i - half) / sigma) ** 2) for i in range(size)]
    weights = np.array(values) / sum(values)
    pixels = np.asarray(image).astype(float)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    if exact:
        weights = np.floor(weights * 16384 + 0.5)
        weights[half] += 16384 - weights.sum()
    for axis, (add, shift) in ((1, (64, 128)), (0, (1 << 20, 1 << 21))):
        pad = [(half, half) if a == axis else (0, 0) for a in range(3)]
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(pixels, pad, "reflect"), size, axis
        )
        pixels = windows @ weights
        if exact:
            pixels = (pixels + add) // shift
    return np.rint(pixels).astype(np.uint8)


def augmentations():
    file = "photo.jpg"
    image = Image.open(HERE / file).convert("RGB").resize((61, 47), Image.Resampling.BILINEAR)
    strong = {
        "op": "color_jitter",
        "brightness": [0.2, 1.8],
        "contrast": [0.2, 1.8],
        "saturation": [0.0, 2.0],
        "hue": [-0.5, 0.5],
    }
    half = {"op": "color_jitter", "brightness": [0.6, 1.4], "hue": [-0.1, 0.1], "p": 0.5}
    gray = {"op": "random_grayscale", "p": 0.5}
    soft = {"op": "gaussian_blur", "kernel_size": 9}
    some = {"op": "gaussian_blur", "kernel_size": 23, "sigma": [0.1, 5.0], "p": 0.5}
    size = {"op": "resize", "size": [47, 61]}
    for sample in range(10):
        key = [sample % 3, sample % 2, sample]
        want = jitter(image, KeyedRandom(*key, 1), strong)
        layout = ("NCHW", "NHWC")[sample % 2]
        expect(file, f"jitter_{sample}", want, [size, strong], layout=layout, key=key)
    for sample in range(6):
        key = [5, 0, sample]
        want = jitter(image, KeyedRandom(*key, 1), half)
        if KeyedRandom(*key, 2).next_double() < 0.5:
            want = want.convert("L").convert("RGB")
        for exact in (True, False):
            done = blur(want, KeyedRandom(*key, 3), some, exact)
            name = f"augmented_{sample}_{'exact' if exact else 'float'}"
            ops = [size, half, gray, some]
            expect(file, name, done, ops, key=key, max_difference=0 if exact else 1)
    luma = Image.open(HERE / "gray.jpg")
    crop = {"op": "center_crop", "size": [35, 45]}
    for sample in range(3):
        want = jitter(luma, KeyedRandom(0, 0, sample, 1), strong)
        done = blur(want, KeyedRandom(0, 0, sample, 2), soft, True)
        ops = [crop, strong, soft]
        expect("gray.jpg", f"augmented_luma_{sample}", done, ops, channels=1, key=[0, 0, sample])


def arrays():
    """.npy files for labels and boxes; their values are written down in
    label_transform_test.cc and boxes_transform_test.cc.
    """
    np.save(HERE / "scalar_i8.npy", np.array(-5, dtype=np.int8))
    np.save(HERE / "matrix_f4.npy", np.array([[0.5, -1.25, 3], [4, 5, 6e10]], dtype=np.float32))
    np.save(HERE / "vector_u2.npy", np.array([0, 300, 65535], dtype=np.uint16))
    np.save(HERE / "bools.npy", np.array([True, False]))
    np.save(HERE / "fortran.npy", np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)))
    np.save(HERE / "big_endian.npy", np.array([1, 2], dtype=">i4"))
    boxes = np.array([[1.5, 2, 11.5, 22], [3, 4, 50, 40]], dtype=np.float32)
    np.save(HERE / "boxes.npy", boxes)
    boxes[1, 2] = np.nan
    np.save(HERE / "boxes_nan.npy", boxes)
    with open(HERE / "version_3.npy", "wb") as file:
        np.lib.format.write_array(file, np.array([1.5, 2.5]), version=(3, 0))
    with open(HERE / "version_2.npy", "wb") as file:
        np.lib.format.write_array(file, np.array([7, 8, 9], dtype=np.int64), version=(2, 0))


def main():
    jpegs()
    pngs()
    interlaced()
    samplings()
    colours()
    surroundings()
    turned()
    webps()
    luma()
    resizes()
    augmentations()
    arrays()
    made_with = {"pillow": PIL.__version__, "numpy": np.__version__}
    (HERE / "cases.json").write_text(
        json.dumps({"made_with": made_with, "cases": cases}, indent=1) + "\n"
    )


main()
