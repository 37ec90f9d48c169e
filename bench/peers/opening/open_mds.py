"""MosaicML Streaming: the first sample of the shuffled stream, then access by number."""

import sys

from streaming import StreamingDataset

dataset = StreamingDataset(local=sys.argv[1], remote=None, shuffle=True, batch_size=64)
print("first", len(next(iter(dataset))["bin"]), flush=True)

from opening import report  # noqa: E402

report(int(sys.argv[2]), len(dataset), lambda index: dataset[index]["bin"])
