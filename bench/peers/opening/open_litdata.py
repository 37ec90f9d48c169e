"""LitData: the first sample of the shuffled stream, then access by number."""

import sys

import litdata

shuffled = litdata.StreamingDataset(sys.argv[1], shuffle=True)
print("first", len(next(iter(shuffled))), flush=True)

from opening import report  # noqa: E402

dataset = litdata.StreamingDataset(sys.argv[1])
report(int(sys.argv[2]), len(dataset), lambda index: dataset[index])
