"""Transforms are declared here and run natively, fused into one pass.

A transform is a description: it pickles, compares and prints, and the native core compiles it. The
random draws of a sample are a function of (seed, epoch, sample number), so pixels do not depend on
threads, world size or resume point. ``docs/guide/transforms.md`` states every draw.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headrace import _native
from headrace.tensor import Tensor

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Op = dict[str, Any]


class NativeTransform:
    """A transform that runs in the native core.

    Call it with bytes to try it on one field: ``t(data, seed=0, epoch=0, sample_id=7)`` gives the
    same ``headrace.Tensor`` that a loader with that seed puts into its batch.
    """

    def __init__(self, description: dict[str, Any]) -> None:
        self._description = description
        self._compiled = _native.Transform.create(self.to_json())

    def to_json(self) -> str:
        """Return the description as JSON text."""
        return json.dumps(self._description, sort_keys=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample's result."""
        return tuple(self._compiled.shape)

    @property
    def dtype(self) -> str:
        """Element type of the result."""
        return self._compiled.dtype

    @property
    def kind(self) -> str:
        """What it is for: ``image``, ``boxes`` or ``label``."""
        return str(self._description["type"])

    def with_stream(self, stream: int) -> NativeTransform:
        """Return this transform with draws from ``stream``, unless it names a stream already."""
        if self.kind == "label" or "stream" in self._description:
            return self
        return NativeTransform({**self._description, "stream": stream})

    def __call__(
        self,
        data: bytes,
        *,
        seed: int = 0,
        epoch: int = 0,
        sample_id: int = 0,
        after: tuple[NativeTransform, bytes] | None = None,
    ) -> Tensor:
        """Transform one field's bytes. Raises DataLossError for what cannot be decoded.

        ``after`` is another transform with its bytes, which goes first: the image of boxes.
        """
        if after is None:
            array = self._compiled.apply(data, seed, epoch, sample_id)
        else:
            first, image = after
            array = self._compiled.apply_after(first._compiled, image, data, seed, epoch, sample_id)
        return Tensor(array, self.shape, self.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NativeTransform) and self._description == other._description

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (NativeTransform, (self._description,))

    def __repr__(self) -> str:
        return f"headrace.transforms.NativeTransform({self.to_json()})"


class PythonTransform(NamedTuple):
    """A Python function applied to the bytes of a field, in the consumer's thread.

    Attributes:
        function: takes the field's bytes (and, if ``seeded``, a ``random.Random`` whose state is a
            function of seed, epoch and sample number); returns a tensor, array or any object.
        seeded: whether ``function`` gets a generator.
    """

    function: Callable[..., Any]
    seeded: bool = False


def image(
    ops: Sequence[Op],
    *,
    dtype: str = "float32",
    layout: str = "NCHW",
    channels: int = 3,
    max_pixels: int = 178_956_970,
    exif_orientation: str = "apply",
    quality: str = "exact",
    dct_scaling: bool = False,
    stream: int | None = None,
) -> NativeTransform:
    """Decode a JPEG, PNG or WebP and apply ``ops`` in order.

    Args:
        ops: results of the functions below, e.g. ``[random_resized_crop(224), normalize()]``.
        dtype: ``uint8`` (0..255), ``float16``, ``bfloat16`` or ``float32`` (normalized, or 0..1
            without ``normalize``).
        layout: ``NCHW`` or ``NHWC``.
        channels: 3 (grey is expanded, alpha dropped) or 1 (luma).
        max_pixels: larger images are refused before anything is allocated.
        exif_orientation: ``apply`` turns the image upright as its Exif data says, before anything
            else; ``ignore`` takes the pixels as they are stored.
        quality: ``exact`` (libjpeg-turbo's pixels, then Pillow's resize) or ``fast``: JPEGs are
            resized before the conversion to RGB; about 0.4 grey levels off on average.
        dct_scaling: let JPEGs be reduced 2, 4 or 8 times while they are decoded, as long as the
            crop stays at least as large as the output. Pays for large photographs.
        stream: number of the stream of draws; None: 0, or as a Loader numbers the views of a field.
            Images of one sample with equal ops and streams get equal draws.

    Raises:
        InvalidArgumentError: ops that make no sense together.
    """
    return NativeTransform(
        {
            "type": "image",
            "ops": list(ops),
            "dtype": dtype,
            "layout": layout,
            "channels": channels,
            "max_pixels": max_pixels,
            "exif_orientation": exif_orientation,
            "quality": quality,
            "dct_scaling": dct_scaling,
            **_stream(stream),
        }
    )


def random_resized_crop(
    size: int | Sequence[int],
    scale: Sequence[float] = (0.08, 1.0),
    ratio: Sequence[float] = (3 / 4, 4 / 3),
) -> Op:
    """Crop a random area of a random aspect ratio and resize it to ``size`` (h, w)."""
    return {
        "op": "random_resized_crop",
        "size": _size(size),
        "scale": list(scale),
        "ratio": list(ratio),
    }


def resize(size: int | Sequence[int]) -> Op:
    """Resize to (h, w), or so that the short side is ``size``; bilinear with antialiasing."""
    if isinstance(size, int):
        return {"op": "resize", "short_side": size}
    return {"op": "resize", "size": _size(size)}


def center_crop(size: int | Sequence[int]) -> Op:
    """Cut (h, w) out of the middle."""
    return {"op": "center_crop", "size": _size(size)}


def random_horizontal_flip(p: float = 0.5) -> Op:
    """Mirror left to right with probability ``p``."""
    return {"op": "random_horizontal_flip", "p": p}


def color_jitter(
    brightness: float | Sequence[float] = 0,
    contrast: float | Sequence[float] = 0,
    saturation: float | Sequence[float] = 0,
    hue: float | Sequence[float] = 0,
    *,
    p: float = 1.0,
) -> Op:
    """Change the colours at random, as torchvision's ``ColorJitter`` on a PIL image does.

    A number x stands for factors from max(0, 1 - x) to 1 + x (for ``hue``: shifts from -x to x, in
    turns, at most 0.5); a pair gives the limits themselves. The four come in random order. With
    probability 1 - ``p`` nothing happens (torchvision's ``RandomApply``).
    """
    return {
        "op": "color_jitter",
        "brightness": _around(brightness, 1.0),
        "contrast": _around(contrast, 1.0),
        "saturation": _around(saturation, 1.0),
        "hue": _around(hue, 0.0),
        "p": p,
    }


def random_grayscale(p: float = 0.1) -> Op:
    """Give all channels the luma, with probability ``p``."""
    return {"op": "random_grayscale", "p": p}


def gaussian_blur(
    kernel_size: int, sigma: float | Sequence[float] = (0.1, 2.0), *, p: float = 1.0
) -> Op:
    """Blur with probability ``p``, with a ``sigma`` drawn from between the limits.

    Args:
        kernel_size: pixels of the filter on each axis; odd, at most 255.
        sigma: limits of the standard deviation in pixels, or the one to use.
        p: probability (torchvision's ``RandomApply``).
    """
    limits = [sigma, sigma] if isinstance(sigma, int | float) else list(sigma)
    return {"op": "gaussian_blur", "kernel_size": kernel_size, "sigma": limits, "p": p}


def normalize(mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD) -> Op:
    """Subtract ``mean`` and divide by ``std`` (of values scaled to 0..1), one number a channel."""
    return {"op": "normalize", "mean": list(mean), "std": list(std)}


def imagenet_train(
    size: int | Sequence[int] = 224,
    *,
    dtype: str = "float32",
    layout: str = "NCHW",
    quality: str = "exact",
    dct_scaling: bool = False,
) -> NativeTransform:
    """Random resized crop, flip, and (for float types) ImageNet normalization.

    The result has shape [3, size, size] (NCHW) or [size, size, 3] (NHWC) for each sample. The
    other arguments are those of ``image``.
    """
    ops = [random_resized_crop(size), random_horizontal_flip(), *_normalize_floats(dtype)]
    return image(ops, dtype=dtype, layout=layout, quality=quality, dct_scaling=dct_scaling)


def imagenet_eval(
    size: int | Sequence[int] = 224,
    *,
    short_side: int = 256,
    dtype: str = "float32",
    layout: str = "NCHW",
    quality: str = "exact",
    dct_scaling: bool = False,
) -> NativeTransform:
    """Resize the short side, cut the middle out, and (for float types) normalize.

    The other arguments are those of ``image``.
    """
    ops = [resize(short_side), center_crop(size), *_normalize_floats(dtype)]
    return image(ops, dtype=dtype, layout=layout, quality=quality, dct_scaling=dct_scaling)


def label(
    *,
    dtype: str = "int64",
    shape: Sequence[int] = (),
    format: str = "auto",
    path: str = "",
) -> NativeTransform:
    """Read a number or an array of fixed shape from text, JSON or ``.npy`` bytes.

    Args:
        dtype: of the result; a value that does not fit is an error, never rounded or wrapped.
        shape: of one sample's result; () = one number.
        format: ``text``, ``json``, ``npy``, or ``auto`` (by content).
        path: JSON pointer to the value, e.g. ``"/annotation/class"``; JSON only.
    """
    return NativeTransform(
        {"type": "label", "dtype": dtype, "shape": list(shape), "format": format, "path": path}
    )


def boxes(
    max_boxes: int,
    *,
    coordinates: str = "xyxy",
    relative_to: str = "stored",
    min_size: float = 1.0,
    path: str = "",
    stream: int | None = None,
) -> NativeTransform:
    """Turn detection boxes along with the image of the same sample.

    The field holds a JSON array of arrays of 4 numbers, or a ``.npy`` array [boxes, 4], in pixels.
    The result is float32 [max_boxes, 5]: x1, y1, x2, y2 in pixels of the output, cut off at the
    image, and a state: 1 = visible, 0 = lost (outside of the crop, or smaller than ``min_size``),
    -1 = no box. Boxes keep their places, so that row i still goes with label i.

    Args:
        max_boxes: rows of the result; a sample with more boxes is bad.
        coordinates: ``xyxy`` (two corners) or ``xywh`` (corner and size).
        relative_to: ``stored`` (boxes turn with the Exif orientation, too) or ``upright`` (they
            were drawn on the upright image).
        min_size: least width and height of a visible box, in pixels of the output.
        path: JSON pointer to the boxes, e.g. ``"/annotation/boxes"``.
        stream: that of the image's transform.
    """
    return NativeTransform(
        {
            "type": "boxes",
            "max_boxes": max_boxes,
            "coordinates": coordinates,
            "relative_to": relative_to,
            "min_size": min_size,
            "path": path,
            **_stream(stream),
        }
    )


def python(function: Callable[..., Any], *, seeded: bool = False) -> PythonTransform:
    """Use a Python function for a field: the escape hatch. Costs only those who use it.

    It runs in the thread that iterates over the loader. With ``seeded=True`` it is called as
    ``function(data, rng)``; draw from ``rng`` only, and results stay reproducible.
    """
    return PythonTransform(function, seeded)


def _normalize_floats(dtype: str) -> list[Op]:
    return [] if dtype == "uint8" else [normalize()]


def _stream(stream: int | None) -> dict[str, int]:
    return {} if stream is None else {"stream": stream}


def _around(value: float | Sequence[float], center: float) -> list[float]:
    """Return the limits that torchvision makes of a number."""
    if not isinstance(value, int | float):
        return list(value)
    least = center - value
    return [max(0.0, least) if center else least, center + value]


def _size(size: int | Sequence[int]) -> list[int]:
    return [size, size] if isinstance(size, int) else list(size)
