"""SPDL from the folder of files: threads of one process, one task a batch, no Python in between.

FFmpeg decodes; crop, scale and flip are its filters, and the frames of a batch are converted into one
buffer. Crops are random, so every image has a filter description of its own.
"""

from __future__ import annotations

import math
import random

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

BATCHES_AHEAD = 4


def random_filters(draw: random.Random) -> str:
    """RandomResizedCrop and flip in FFmpeg's words; the size is unknown before decoding."""
    share = draw.uniform(0.08, 1.0)
    ratio = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
    width = f"min(iw,sqrt(iw*ih*{share * ratio:.5f}))"
    height = f"min(ih,sqrt(iw*ih*{share / ratio:.5f}))"
    left, top = f"(iw-ow)*{draw.random():.5f}", f"(ih-oh)*{draw.random():.5f}"
    flip = ",hflip" if draw.random() < 0.5 else ""
    return (
        f"crop=w='{width}':h='{height}':x='{left}':y='{top}':exact=1,"
        f"scale={SIZE}:{SIZE}:flags=bilinear{flip},format=pix_fmts=rgb24"
    )


CENTER_FILTERS = (
    f"crop='min(iw,ih)':'min(iw,ih)',scale={SIZE}:{SIZE}:flags=area,format=pix_fmts=rgb24"
)


class BatchLoader:
    """Decodes the files of one batch and makes one array of them."""

    def __init__(self, args) -> None:
        import numpy
        import spdl.io

        self._numpy, self._io = numpy, spdl.io
        self._is_check, self._dtype = args.is_check, args.dtype
        self._draw = random.Random(SEED)
        self._config = spdl.io.decode_config(decoder_options={"threads": "1"})
        std = 255 * numpy.array(IMAGENET_STD, numpy.float32)
        self._scale = (1 / std).reshape(1, 3, 1, 1)
        self._offset = (255 * numpy.array(IMAGENET_MEAN, numpy.float32) / std).reshape(1, 3, 1, 1)

    def __call__(self, files: list[tuple[str, int]]):
        frames = [
            self._io.decode_packets(
                self._io.demux_image(path),
                decode_config=self._config,
                filter_desc=CENTER_FILTERS if self._is_check else random_filters(self._draw),
            )
            for path, _ in files
        ]
        images = self._io.to_numpy(self._io.convert_frames(frames)).transpose(0, 3, 1, 2)
        if self._dtype == "float32":
            normalized = self._numpy.empty(images.shape, self._numpy.float32)
            self._numpy.multiply(images, self._scale, out=normalized)
            normalized -= self._offset
            images = normalized
        return images, [label for _, label in files]


def train(args) -> None:
    import numpy  # noqa: F401  counted as an import
    import spdl.io  # noqa: F401
    from spdl.pipeline import PipelineBuilder

    imports_done()
    files = image_files(args.images)
    load = BatchLoader(args)
    threads = max(args.workers, 1)

    def epoch(number: int):
        order = list(files)
        random.Random(SEED + number).shuffle(order)
        builder = PipelineBuilder().add_source(order).aggregate(args.batch_size)
        builder = builder.pipe(load, concurrency=threads, output_order="completion")
        pipeline = builder.add_sink(BATCHES_AHEAD).build(num_threads=threads)
        with pipeline.auto_stop():
            yield from pipeline

    measure_train(args, epoch, len(files))


if __name__ == "__main__":
    run(arguments(), {"train": train})
