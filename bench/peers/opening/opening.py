"""What the scripts of this folder share. Imported only after the first sample is there.

Each script `open_NAME.py FOLDER COUNT` opens the small dataset, prints one line as soon as it has a
sample in its hands, and then calls `report`. The harness takes the time from starting the process to
that line, so these scripts import nothing that a user of the loader would not.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

RANDOM_READS = 2000


def resident_mb() -> float:
    """Resident memory of this process."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def report(count: int, length: int | None, read: Callable[[int], bytes] | None) -> None:
    """Print what was opened; time random access through `read(index)` where there is such a thing."""
    result = {"resident_mb": resident_mb(), "length": length}
    if length is not None and length != count:
        raise ValueError(f"expected {count} samples, found {length}")
    if read is not None:
        generator = random.Random(1)
        indexes = [generator.randrange(count) for _ in range(RANDOM_READS)]
        start = time.monotonic()
        samples = [read(index) for index in indexes]
        result["random_read_us"] = (time.monotonic() - start) / RANDOM_READS * 1e6
        for index, sample in zip(indexes, samples, strict=True):
            if len(sample) != 100 or int.from_bytes(bytes(sample[:8]), "big") != index:
                raise ValueError(f"expected sample {index}, found {bytes(sample[:8])!r}")
    print(json.dumps({"result": result}), flush=True)
