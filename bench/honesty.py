"""Do all contenders do the same work? One fixed crop, every pixel averaged.

Each contender decodes the largest square in the middle of every image and resizes it to 224. The
number of images and the sum of the labels must be equal, the channel means must agree with the floor.
"""

from __future__ import annotations

from contenders import Job

# Antialiased resize and the slow, exact DCT: nothing but rounding lies between them.
TOLERANCE = 0.0015
# FFCV and TensorFlow use the fast integer DCT, which darkens red and blue by about one gray level, and
# TensorFlow cuts the fraction off when it stores bytes.
FAST_DCT_TOLERANCE = 0.008
# SPDL converts colours by FFmpeg, half a gray level off in green.
FFMPEG_TOLERANCE = 0.003
TOLERANCES = {
    "FFCV": FAST_DCT_TOLERANCE,
    "tf.data": FAST_DCT_TOLERANCE,
    "SPDL": FFMPEG_TOLERANCE,
}


def judge(job: Job, result: dict, floor: dict, label_sum: int) -> list[str]:
    """What is wrong with a contender's check; empty if it does the same work as the floor."""
    faults = []
    if result["samples"] != floor["samples"]:
        faults.append(f"expected {floor['samples']} images, found {result['samples']}")
    if result["label_sum"] != label_sum:
        faults.append(f"expected label sum {label_sum}, found {result['label_sum']}")
    if result["dtype"] != job.dtype:
        faults.append(f"expected {job.dtype}, found {result['dtype']}")
    allowed = TOLERANCES.get(job.contender, TOLERANCE)
    off = max(
        abs(a - b) for a, b in zip(result["channel_means"], floor["channel_means"], strict=True)
    )
    if off > allowed:
        means = result["channel_means"]
        faults.append(
            f"channel means {means} are {off:.4f} away from the floor's, allowed {allowed}"
        )
    return faults
